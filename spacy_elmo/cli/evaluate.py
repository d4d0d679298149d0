import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Optional

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..storage import replacing
from ..text.files import find_texts
from ._app import app
from .inputs import CODE, LANG, TEXT, TOKENIZED, VOCAB, read_tokenizer, require_other
from .outputs import print_perplexities


@app.command("evaluate")
def evaluate_cli(
    weights: str = Arg(..., help="Name or path of a model with its softmax"),
    text: str = TEXT,
    vocab_path: Optional[Path] = VOCAB,
    state: Literal["zero", "carried"] = Opt(
        "zero", "--state", "-s", help="LSTM state: zero at each sentence, or carried"
    ),
    lang: Optional[str] = LANG,
    tokenized: Optional[bool] = TOKENIZED,
    output_path: Optional[Path] = Opt(
        None, "--output", "-o", help="Output JSON file for the metrics", dir_okay=False
    ),
    code_path: Optional[Path] = CODE,
) -> Any:  # a Perplexity, for scripts
    """
    Print the perplexity of a biLM on held-out text. Forward, backward and on average,
    by the exact softmax, with bits per character.
    """
    from ..pretraining.corpus import load_each
    from ..pretraining.evaluation import evaluate_files
    from ..pretraining.language_model import LanguageModel
    from ..weights import resolve

    if output_path is not None:
        require_other(output_path, find_texts(text))
    path = resolve(weights)
    model = LanguageModel.from_path(path, vocab_path=vocab_path)
    tokenizer = read_tokenizer(path, lang, tokenized)
    width = model.bilm.options.char_cnn.max_characters_per_token
    with TemporaryDirectory() as cache:
        files = load_each([text], Path(cache), tokenizer, model.words, width)
        found = evaluate_files(model.bilm, model.softmax, files, state=state)
        del files  # Windows removes no file that is mapped
    print_perplexities({**found.files, text: found})
    msg.text(f"LSTM state: {state}")
    if output_path is not None:
        # Not by srsly: the perplexities of a run that has diverged are infinite.
        metrics = json.dumps({**found.to_dict(), "state": state}, indent=2)
        with replacing(output_path) as temporary:
            temporary.write_text(f"{metrics}\n", encoding="utf8")
    return found
