import shutil
from pathlib import Path
from typing import List, Optional

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ._app import app, plain_errors

# What else a model of ours has, beside options and weights.
COMPANIONS = ("vocab.txt", "config.cfg")


@app.command("warm")
def warm_cli(
    weights: str = Arg(..., help="Name or path of a biLM"),
    text: str = Arg(
        ...,
        help="Running text: a file, a directory or a glob (.txt, .jsonl or .spacy, "
        "compressed or not)",
    ),
    output_path: Path = Arg(..., help="Directory for the copy", file_okay=False),
    limit: int = Opt(
        100_000, "--limit", min=1, help="Read so many tokens of the text and no more"
    ),
    lang: Optional[str] = Opt(None, "--lang", "-l", help="Language of the tokenizer"),
    tokenized: Optional[bool] = Opt(
        None, "--tokenized/--raw", help="Words stand between blanks"
    ),
) -> None:
    """
    Copy a biLM and store the mean of the states that it ends sentences with, for
    `initial_state = "warm"`: models that were trained with carried state have never
    read a sentence from zeros.
    """
    with plain_errors():
        n = warm(
            weights, text, output_path, limit=limit, lang=lang, tokenized=tokenized
        )
    msg.good(
        f"{output_path} has the mean state of {n:,} sentences",
        'In a config: initial_state = "warm"',
    )


def warm(
    weights: str,
    text: str,
    output_path: Path,
    *,
    limit: int = 100_000,
    lang: Optional[str] = None,
    tokenized: Optional[bool] = None,
) -> int:
    """Write a copy of a biLM with its mean state after a sentence.

    RETURNS (int): Number of sentences read.
    RAISES (ValueError): If the text is too short, or the model cannot be read.
    """
    from ..bilm import BiLM
    from ..bilm.files import find_files
    from ..bilm.official_format import write_warm
    from ..bilm.warm import mean_state
    from ..text import find_texts
    from ..weights import resolve
    from ._docs import read_batches
    from ._load import load_elmo

    nlp, elmo, tokenized = load_elmo(weights, None, lang, tokenized)
    segmenter = elmo.model.attrs["segmenter"]
    sentences: List[List[str]] = []
    for docs in read_batches(
        nlp, find_texts(text), segmenter, tokenized=tokenized, limit=limit
    ):
        for doc in docs:
            for span in segmenter(doc):
                words = [token.text for token in span if not token.is_space]
                if words:
                    sentences.append(words)
    source = resolve(weights)
    state = mean_state(BiLM.from_path(source), sentences)
    write_warm(find_files(source), state, output_path)
    beside = source if source.is_dir() else source.parent
    for name in COMPANIONS:
        if (beside / name).is_file():
            shutil.copyfile(beside / name, output_path / name)
    return len(sentences)
