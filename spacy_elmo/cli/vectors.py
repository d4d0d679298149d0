import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Iterable, List, Optional, Union

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors, unusable
from ._app import app, plain_errors
from ._inputs import LANG, TEXT, TOKENIZED, load_elmo, read_batches

if TYPE_CHECKING:
    from ..pipeline.static_vectors import StaticVectors


@app.command("vectors")
def vectors_cli(
    weights: str = Arg(..., help="Name or path of a biLM"),
    text: str = TEXT,
    output_path: Path = Arg(
        ..., help="Output file, compressed if it ends in .gz", dir_okay=False
    ),
    layer: str = Opt(
        "top",
        "--layer",
        "-L",
        help="Layer to average: 'top', 'mean' of all, or its number (0 is the token "
        "layer)",
    ),
    max_words: int = Opt(
        20_000, "--max-words", "-n", min=1, help="Keep the most frequent words"
    ),
    min_count: int = Opt(
        1, "--min-count", "-m", min=1, help="Keep words that occur so often"
    ),
    words_path: Optional[Path] = Opt(
        None,
        "--words",
        help="File of words, one a line, that get a vector too: those that the text "
        "lacks by their characters",
        exists=True,
        dir_okay=False,
    ),
    lang: Optional[str] = LANG,
    tokenized: Optional[bool] = TOKENIZED,
) -> None:
    """
    Write static word vectors: for each word of a text the mean of its contextual
    vectors there. A pipeline with them needs no biLM and not this package: python -m
    spacy init vectors LANG OUTPUT_PATH PIPELINE
    """
    with plain_errors():
        found = vectors(
            weights,
            text,
            layer=int(layer) if layer.isdecimal() else layer,
            max_words=max_words,
            min_count=min_count,
            words=() if words_path is None else _read_words(words_path),
            lang=lang,
            tokenized=tokenized,
        )
        write_vectors(output_path, found)
    n_words, width = found.vectors.shape
    msg.good(f"{output_path} has {n_words:,} vectors of width {width}")


def vectors(
    weights: str,
    text: str,
    *,
    layer: Union[int, str] = "top",
    max_words: int = 20_000,
    min_count: int = 1,
    words: Iterable[str] = (),
    lang: Optional[str] = None,
    tokenized: Optional[bool] = None,
) -> "StaticVectors":
    """Make static vectors, reading a text once. See `vectors_cli`.

    RETURNS (StaticVectors): Words of the text by falling frequency, then others.
    RAISES (CorpusError): If the text or a setting cannot be used.
    RAISES (WeightsError): If the biLM cannot be read.
    """
    from ..pipeline.static_vectors import add_words, average_contexts
    from ..text import find_texts

    files = find_texts(text)
    nlp, elmo, tokenized = load_elmo(weights, None, lang, tokenized, layer)
    segmenter = elmo.model.attrs["segmenter"]
    batches = read_batches(nlp, files, segmenter, tokenized=tokenized)
    known = average_contexts(
        elmo, batches, layer=layer, max_words=max_words, min_count=min_count
    )
    if not known.words:
        raise CorpusError(Errors.E050.format(path=text))
    return add_words(elmo, known, words)


def write_vectors(path: Path, vectors: "StaticVectors") -> None:
    """Write word vectors in the text format of word2vec."""
    from ..storage import replacing

    opener = gzip.open if path.suffix == ".gz" else open
    with replacing(path) as temporary:
        with opener(temporary, "wt", encoding="utf8") as file:
            n_words, width = vectors.vectors.shape
            file.write(f"{n_words} {width}\n")
            for word, vector in zip(*vectors):
                file.write(" ".join([word, *(f"{x:.5g}" for x in vector.tolist())]))
                file.write("\n")


def _read_words(path: Path) -> List[str]:
    try:
        lines = path.read_text(encoding="utf8").split("\n")
    except UnicodeDecodeError as e:
        raise unusable(path, f"is not UTF-8 ({e})") from None
    return [line.strip() for line in lines if line.strip()]
