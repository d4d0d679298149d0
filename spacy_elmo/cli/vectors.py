import gzip
from pathlib import Path
from typing import Optional

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import unusable
from ..storage import replacing
from ..text.documents import read_texts
from ..text.files import find_texts
from . import inputs
from ._app import app


@app.command("vectors")
def vectors_cli(
    weights: str = Arg(..., help="Name or path of a biLM"),
    text: str = inputs.TEXT,
    output_path: Path = Arg(..., help="Output file, .gz to compress", dir_okay=False),
    layer: str = Opt("top", "--layer", "-L", help=f"Layer to average: {inputs.LAYERS}"),
    max_words: int = Opt(
        20_000, "--max-words", "-n", min=1, help="Keep the most frequent words only"
    ),
    min_count: int = Opt(
        1, "--min-count", "-m", min=1, help="Drop words seen fewer times"
    ),
    words_path: Optional[Path] = Opt(
        None, "--words", help="More words, between spaces or line breaks", **inputs.FILE
    ),
    lang: Optional[str] = inputs.LANG,
    tokenized: Optional[bool] = inputs.TOKENIZED,
    code_path: Optional[Path] = inputs.CODE,
) -> None:
    """
    Write static word vectors. Each word of a text gets the mean of its contextual
    vectors there. A pipeline with them needs neither the biLM nor this package:
    python -m spacy init vectors LANG OUTPUT_PATH PIPELINE
    """
    from ..pipeline.static_vectors import add_words, average_contexts

    lists = [words_path] if words_path else []
    inputs.require_other(output_path, [*find_texts(text), *lists])
    texts = (text for path in lists for text in read_texts(path, tokenized=True))
    words = [str(word) for text in texts for word in text]
    nlp, tokenized = inputs.load_reader(weights, None, lang, tokenized)
    elmo = inputs.find_elmo(nlp, None)
    opener = gzip.open if output_path.suffix == ".gz" else open
    # Opened first, so that an output that cannot be written fails at once.
    with (
        replacing(output_path) as temporary,
        opener(temporary, "wt", encoding="utf8") as out,
    ):
        known, vectors = average_contexts(
            elmo,
            inputs.read_batches(nlp, text, tokenized),
            layer=inputs.choose_layer(elmo, layer),
            max_words=max_words,
            min_count=min_count,
            keep=words,
        )
        if not known:
            raise unusable(text, f"no word is in it {min_count} times or more")
        if words:
            known, vectors = add_words(elmo, known, vectors, words)
        n_words, width = vectors.shape
        # The text format of word2vec
        out.write(f"{n_words} {width}\n")
        for word, vector in zip(known, vectors.tolist()):
            out.write(" ".join([word, *(f"{x:.5g}" for x in vector)]) + "\n")
    msg.good(f"{output_path} has {n_words:,} vectors of width {width}")
