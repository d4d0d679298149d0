from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Optional, Union

import srsly
from spacy.cli._util import Arg, Opt
from wasabi import msg

from ._app import app, plain_errors
from ._inputs import LANG, TEXT, TOKENIZED, VOCAB, read_tokenization


class State(str, Enum):
    zero = "zero"
    carried = "carried"


@app.command("evaluate")
def evaluate_cli(
    weights: str = Arg(
        ..., help="Name or path of a model that 'spacy elmo pretrain' wrote"
    ),
    text: str = TEXT,
    vocab_path: Optional[Path] = VOCAB,
    state: State = Opt(
        State.zero,
        "--state",
        "-s",
        help="LSTM state: 'zero' at each sentence, or 'carried' along each document",
    ),
    lang: Optional[str] = LANG,
    tokenized: Optional[bool] = TOKENIZED,
    output_path: Optional[Path] = Opt(
        None, "--output", "-o", help="Output JSON file for the metrics", dir_okay=False
    ),
) -> None:
    """
    Evaluate a pretrained biLM on held-out text: perplexity by the exact full
    softmax, forward, backward and average, and bits per character.
    """
    with plain_errors():
        metrics = evaluate(
            weights,
            text,
            vocab_path=vocab_path,
            state=state,
            lang=lang,
            tokenized=tokenized,
        )
        if output_path is not None:
            srsly.write_json(output_path, metrics)
    msg.table(
        {
            "Perplexity, forward": f"{metrics['forward']:.2f}",
            "Perplexity, backward": f"{metrics['backward']:.2f}",
            "Perplexity, average": f"{metrics['average']:.2f}",
            "Bits per character": f"{metrics['bits_per_character']:.4f}",
            "Tokens": f"{metrics['n_tokens']:,}",
            "of which unknown": f"{metrics['n_unknown']:,}",
            "LSTM state": metrics["state"],
            **{
                f"Perplexity of {name}": f"{found['average']:.2f}"
                for name, found in metrics.get("files", {}).items()
            },
        }
    )


def evaluate(
    weights: Union[str, Path],
    text: str,
    *,
    vocab_path: Optional[Path] = None,
    state: State = State.zero,
    lang: Optional[str] = None,
    tokenized: Optional[bool] = None,
) -> Dict[str, Any]:
    """Evaluate a pretrained biLM.

    RETURNS (Dict[str, Any]): What `pretraining.evaluation.Perplexity` holds, and the
        state.
    RAISES (WeightsError): If the model cannot be read, or has no softmax.
    RAISES (CorpusError): If the text or the vocabulary cannot be used.
    """
    from ..pretraining.corpus import Preparation, load_each
    from ..pretraining.evaluation import evaluate as evaluate_bilm
    from ..pretraining.evaluation import join
    from ..pretraining.language_model import LanguageModel
    from ..weights import resolve

    path = resolve(weights)
    model = LanguageModel.from_path(path, vocab_path=vocab_path)
    nlp, settings = read_tokenization(path, lang, tokenized)
    width = model.bilm.options.char_cnn.max_characters_per_token
    preparation = Preparation(nlp, settings, width, model.words)
    with TemporaryDirectory() as cache:
        files = load_each([text], Path(cache), preparation)
        found = join(
            {
                name: evaluate_bilm(
                    model.bilm, model.softmax, corpus, state=state.value
                )
                for name, corpus in files.items()
            }
        )
    return {**found.to_dict(), "state": state.value}
