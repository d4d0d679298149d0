import gzip
from pathlib import Path
from typing import List, Optional

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors, unusable
from . import inputs
from ._app import app


@app.command("vectors")
def vectors_cli(
    weights: str = Arg(..., help="Name or path of a biLM"),
    text: str = inputs.TEXT,
    output_path: Path = Arg(
        ..., help="Output file, compressed if it ends in .gz", dir_okay=False
    ),
    layer: str = Opt("top", "--layer", "-L", help=f"Layer to average: {inputs.LAYERS}"),
    max_words: int = Opt(
        20_000, "--max-words", "-n", min=1, help="Keep the most frequent words"
    ),
    min_count: int = Opt(
        1, "--min-count", "-m", min=1, help="Keep words that occur so often"
    ),
    words_path: Optional[Path] = Opt(
        None,
        "--words",
        help="File of words, one a line, that get a vector too: those that the "
        "text lacks by their characters",
        exists=True,
        dir_okay=False,
    ),
    lang: Optional[str] = inputs.LANG,
    tokenized: Optional[bool] = inputs.TOKENIZED,
) -> None:
    """
    Write static word vectors: for each word of a text the mean of its contextual
    vectors there. A pipeline with them needs no biLM and not this package: python -m
    spacy init vectors inputs.LANG OUTPUT_PATH inputs.PIPELINE
    """
    from ..pipeline.static_vectors import add_words, average_contexts
    from ..storage import replacing

    words = [] if words_path is None else _read_words(words_path)
    nlp, elmo, tokenized = inputs.load_elmo(weights, None, lang, tokenized)
    known, vectors = average_contexts(
        elmo,
        inputs.read_batches(nlp, elmo, text, tokenized=tokenized),
        layer=inputs.choose_layer(elmo, layer),
        max_words=max_words,
        min_count=min_count,
    )
    if not known:
        raise CorpusError(Errors.E050.format(path=text))
    known, vectors = add_words(elmo, known, vectors, words)
    opener = gzip.open if output_path.suffix == ".gz" else open
    with replacing(output_path) as temporary:
        # The text format of word2vec
        with opener(temporary, "wt", encoding="utf8") as file:
            file.write("{} {}\n".format(*vectors.shape))
            for word, vector in zip(known, vectors.tolist()):
                file.write(" ".join([word, *(f"{x:.5g}" for x in vector)]) + "\n")
    n_words, width = vectors.shape
    msg.good(f"{output_path} has {n_words:,} vectors of width {width}")


def _read_words(path: Path) -> List[str]:
    try:
        lines = path.read_text(encoding="utf8").split("\n")
    except UnicodeDecodeError as e:
        raise unusable(path, f"is not UTF-8 ({e})") from None
    return [line.strip() for line in lines if line.strip()]
