from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Dict, Literal, Optional

import srsly
from spacy.cli._util import Arg, Opt
from wasabi import msg

from ._app import app
from ._inputs import LangOpt, TextArg, TokenizedOpt, VocabOpt, read_tokenization


@app.command("evaluate")
def evaluate_cli(
    weights: Annotated[
        str, Arg(help="Name or path of a model that 'spacy elmo pretrain' wrote")
    ],
    text: TextArg,
    vocab_path: VocabOpt = None,
    state: Annotated[
        Literal["zero", "carried"],
        Opt(
            "--state",
            "-s",
            help="LSTM state: 'zero' at each sentence, or 'carried' along a document",
        ),
    ] = "zero",
    lang: LangOpt = None,
    tokenized: TokenizedOpt = None,
    output_path: Annotated[
        Optional[Path],
        Opt("--output", "-o", help="Output JSON file for the metrics", dir_okay=False),
    ] = None,
) -> Dict[str, Any]:
    """
    Evaluate a pretrained biLM on held-out text: perplexity by the exact full
    softmax, forward, backward and average, and bits per character.
    """
    from ..pretraining.corpus import Preparation, load_each
    from ..pretraining.evaluation import evaluate, join
    from ..pretraining.language_model import LanguageModel
    from ..weights import resolve

    path = resolve(weights)
    model = LanguageModel.from_path(path, vocab_path=vocab_path)
    nlp, settings = read_tokenization(path, lang, tokenized)
    width = model.bilm.options.char_cnn.max_characters_per_token
    with TemporaryDirectory() as cache:
        files = load_each(
            [text], Path(cache), Preparation(nlp, settings, width, model.words)
        )
        found = join(
            {
                name: evaluate(model.bilm, model.softmax, corpus, state=state)
                for name, corpus in files.items()
            }
        )
    metrics = {**found.to_dict(), "state": state}
    if output_path is not None:
        srsly.write_json(output_path, metrics)
    msg.table(
        {
            "Perplexity, forward": f"{found.forward:.2f}",
            "Perplexity, backward": f"{found.backward:.2f}",
            "Perplexity, average": f"{found.average:.2f}",
            "Bits per character": f"{found.bits_per_character:.4f}",
            "Tokens": f"{found.n_tokens:,}",
            "of which unknown": f"{found.n_unknown:,}",
            "LSTM state": state,
            **{
                f"Perplexity of {name}": f"{of_file.average:.2f}"
                for name, of_file in found.files.items()
            },
        }
    )
    return metrics
