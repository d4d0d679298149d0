from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

import srsly
import typer
from spacy.cli._util import Arg, Opt

from ..text.documents import read_all
from ..text.lines import read_lines
from . import inputs
from ._app import app

if TYPE_CHECKING:
    from ..pretraining.language_model import Floats2d, LanguageModel

NO_BREAK = str.maketrans(" \t", "\u00a0\u00a0")


@app.command("score")
def score_cli(
    text: str = Arg(
        ...,
        help=f"Text, one sentence per line: {inputs.FILES}, or '-' for standard input",
    ),
    weights: Optional[str] = inputs.WEIGHTS,
    vocab_path: Optional[Path] = inputs.VOCAB,
    lang: Optional[str] = inputs.LANG,
    tokenized: Optional[bool] = inputs.TOKENIZED,
    as_jsonl: bool = Opt(False, "--jsonl", "-j", help="Print JSON lines, not TSV"),
    code_path: Optional[Path] = inputs.CODE,
) -> None:
    """
    Print how likely sentences and their words are. Each line of the text gives one
    line, also an empty one.

    log2_forward, log2_backward: the log-likelihood of the sentence and its end
    (backward: its beginning) in bits. bits_per_character: of both directions on
    average, as `evaluate` has it. words: its words, by spaCy's tokenizer if they are
    not --tokenized; TSV has a no-break space for a space in a word. forward, backward:
    the surprisal of each word in bits, given the words before and given the words
    after. unknown: the numbers, from 0, of the words outside the vocabulary, which
    count as <UNK>.
    """
    from ..pretraining.language_model import LanguageModel
    from ..weights import resolve

    path = resolve(inputs.DEFAULT_WEIGHTS if weights is None else weights)
    model = LanguageModel.from_path(path, vocab_path=vocab_path)
    tokenizer = inputs.read_tokenizer(path, lang, tokenized)
    if text == "-":
        binary = typer.get_binary_stream("stdin")
        lines: Iterator[Any] = read_lines(text, binary, strict=True)
    else:
        is_tokenized = tokenizer.settings.tokenized
        lines = read_all(text, keep_empty=True, tokenized=is_tokenized)
    is_first = True
    # In batches: the text may be endless.
    for part in inputs.batch_by_length(lines, inputs.BATCH_LENGTH):
        sentences = [list(chain(*tokenizer([line]))) for line in part]
        surprisals = model.score(sentences, boundaries=True)
        for sentence, surprisal in zip(sentences, surprisals):
            found = _to_record(model, sentence, surprisal)
            if as_jsonl:
                print(srsly.json_dumps(found))
                continue
            if is_first:
                print("\t".join(found))
            is_first = False
            cells = (x if isinstance(x, list) else [x] for x in found.values())
            row = (" ".join(str(x).translate(NO_BREAK) for x in cell) for cell in cells)
            print("\t".join(row))


def _to_record(
    model: "LanguageModel", sentence: List[str], surprisal: "Floats2d"
) -> Dict[str, Any]:
    """What is known of a sentence, by the names of the columns."""
    forward, backward = surprisal.sum(axis=0).tolist()
    n_characters = sum(len(word) + 1 for word in sentence) + 1
    return {
        "log2_forward": round(-forward, 4),
        "log2_backward": round(-backward, 4),
        "bits_per_character": round((forward + backward) / 2 / n_characters, 4),
        "words": sentence,
        "forward": surprisal[1:-1, 0].round(4).tolist(),
        "backward": surprisal[1:-1, 1].round(4).tolist(),
        "unknown": [i for i, word in enumerate(sentence) if model.is_oov(word)],
    }
