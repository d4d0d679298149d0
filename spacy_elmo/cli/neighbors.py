import re
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional, Union

from spacy.cli._util import Arg, Opt

from ..errors import CorpusError, Errors
from ._app import app, plain_errors
from ._docs import make_doc, read_batches
from ._load import DEFAULT_WEIGHTS, load_elmo, load_static, require_layer
from ._neighbors_output import print_json, print_tables, write_page

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Token

    from ..pipeline.nearest import Neighbors

_BRACKETS = re.compile(r"\[\s*([^\[\]\s][^\[\]]*?)\s*\]")


@app.command("neighbors")
def neighbors_cli(
    corpus: str = Arg(
        ...,
        help="Text to search: a file, a directory or a glob (.txt, .jsonl or .spacy, "
        "compressed or not)",
    ),
    queries: List[str] = Arg(
        ...,
        metavar="QUERY...",
        help='Sentence with one word in brackets: "She made a fine [play] on the ball"',
    ),
    layer: str = Opt(
        "top",
        "--layer",
        help="Layer to compare: 'top', 'mean' of all, or its number (0 is the token "
        "layer)",
    ),
    n: int = Opt(5, "--n", "-n", min=1, help="Number of neighbours"),
    same_word: bool = Opt(
        False,
        "--same-word/--any-word",
        help="Compare with the same word only (in upper or lower case), or with any",
    ),
    limit: Optional[int] = Opt(
        None, "--limit", min=1, help="Read so many tokens of the corpus and no more"
    ),
    weights: Optional[str] = Opt(
        None,
        "--weights",
        "-w",
        help=f"Name or path of a biLM; '{DEFAULT_WEIGHTS}' by default",
    ),
    pipeline: Optional[str] = Opt(
        None,
        "--pipeline",
        "-p",
        help="Pipeline whose 'elmo' component and tokenizer are used instead",
    ),
    vectors: Optional[str] = Opt(
        None,
        "--vectors",
        help="Pipeline with word vectors for the static table; by default layer 0 of "
        "the biLM is the table",
    ),
    lang: Optional[str] = Opt(
        None,
        "--lang",
        "-l",
        help="Language whose tokenizer reads the text; by default that of config.cfg "
        "beside the weights, else 'en'",
    ),
    tokenized: Optional[bool] = Opt(
        None,
        "--tokenized/--raw",
        help="The words of text and queries stand between blanks; by default as in "
        "config.cfg beside the weights",
    ),
    html_path: Optional[Path] = Opt(
        None,
        "--html",
        help="Write a page with the contexts to this file",
        dir_okay=False,
    ),
    as_json: bool = Opt(False, "--json", "-j", help="Print JSON"),
) -> None:
    """
    Search a corpus for the contexts that are nearest to that of a word, by the
    cosine of a layer of the biLM, beside the nearest words by a static table: table 4
    of the paper. The table has the words of the corpus. The query's own sentence is
    no neighbour, and of a sentence that is repeated, one counts.
    """
    with plain_errors():
        found = neighbors(
            corpus,
            queries,
            layer=int(layer) if layer.isdecimal() else layer,
            n=n,
            same_word=same_word,
            limit=limit,
            weights=weights,
            pipeline=pipeline,
            vectors=vectors,
            lang=lang,
            tokenized=tokenized,
        )
        names = {"layer": layer, "static": _static_name(vectors)}
        if html_path is not None:
            write_page(html_path, found, **names)
    if as_json:
        print_json(found, **names)
    else:
        print_tables(found, **names)


def neighbors(
    corpus: str,
    queries: List[str],
    *,
    layer: Union[int, str] = "top",
    n: int = 5,
    same_word: bool = False,
    limit: Optional[int] = None,
    weights: Optional[str] = None,
    pipeline: Optional[str] = None,
    vectors: Optional[str] = None,
    lang: Optional[str] = None,
    tokenized: Optional[bool] = None,
) -> List["Neighbors"]:
    """Search a corpus, which is read once and never held in memory.

    RETURNS (List[Neighbors]): What was found for each query.
    RAISES (CorpusError): If a query, the corpus or a setting cannot be used.
    RAISES (WeightsError): If the biLM cannot be read.
    """
    from ..pipeline.nearest import find_neighbors
    from ..text import find_texts

    files = find_texts(corpus)
    static = None if vectors is None else load_static(vectors)
    nlp, elmo, tokenized = load_elmo(weights, pipeline, lang, tokenized)
    tokens = [_find_word(nlp, query, tokenized) for query in queries]
    require_layer(elmo, layer)
    segmenter = elmo.model.attrs["segmenter"]
    batches = read_batches(nlp, files, segmenter, tokenized=tokenized, limit=limit)
    return find_neighbors(
        elmo, tokens, batches, layer=layer, n=n, same_word=same_word,
        static_vectors=static,
    )  # fmt: skip


def _static_name(vectors: Optional[str]) -> str:
    return "layer 0 of the biLM" if vectors is None else f"the vectors of {vectors}"


def _find_word(nlp: "Language", query: str, tokenized: bool) -> "Token":
    """The word in brackets, in its sentence without them."""
    # A terminal may pass half a character.
    query = query.encode("utf8", "ignore").decode("utf8")
    if tokenized:
        query = " ".join(query.split())
    found = list(_BRACKETS.finditer(query))
    if len(found) != 1:
        raise CorpusError(Errors.E120.format(query=query, found=len(found)))
    (match,) = found
    before, word, after = query[: match.start()], match[1], query[match.end() :]
    text = before + word + after
    doc = make_doc(nlp, text.split() if tokenized else text)
    place = (len(before), len(before) + len(word))
    span = doc.char_span(*place)
    if span is None or len(span) != 1:
        around = doc.char_span(*place, alignment_mode="expand")
        tokens = ", ".join(repr(token.text) for token in around or [])
        problem = Errors.E121.format(query=query, word=word, tokens=tokens)
        raise CorpusError(problem)
    return span[0]
