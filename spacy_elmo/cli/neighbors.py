import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

import srsly
from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors
from ._app import app, plain_errors
from ._inputs import (
    JSON,
    LANG,
    PIPELINE,
    TEXT,
    TOKENIZED,
    WEIGHTS,
    load_elmo,
    make_doc,
    read_batches,
)

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Token

    from ..pipeline.nearest import Context, Neighbors

_BRACKETS = re.compile(r"\[\s*([^\[\]\s][^\[\]]*?)\s*\]")
QUERY_COLOR, CONTEXT_COLOR = "#feca74", "#9cc9cc"
# Columns of a table beside the contexts: the score, and the gaps.
MARGIN = 20


@app.command("neighbors")
def neighbors_cli(
    corpus: str = TEXT,
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
    n: int = Opt(5, "--n", "-n", min=1, help="Number of neighbors"),
    same_word: bool = Opt(
        False,
        "--same-word/--any-word",
        help="Compare with the same word only (in upper or lower case), or with any",
    ),
    limit: Optional[int] = Opt(
        None, "--limit", min=1, help="Stop after about so many tokens of the corpus"
    ),
    weights: Optional[str] = WEIGHTS,
    pipeline: Optional[str] = PIPELINE,
    lang: Optional[str] = LANG,
    tokenized: Optional[bool] = TOKENIZED,
    html_path: Optional[Path] = Opt(
        None,
        "--html",
        help="Write a page with the contexts to this file",
        dir_okay=False,
    ),
    as_json: bool = JSON,
) -> None:
    """
    Search a corpus for the contexts that are nearest to that of a word, by the cosine
    of a layer of the biLM. The query's own sentence is no neighbor, and of a sentence
    that is repeated, one counts.
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
            lang=lang,
            tokenized=tokenized,
        )
        if html_path is not None:
            write_page(html_path, found)
    if as_json:
        results = [
            {
                "query": _to_dict(query),
                "layer": layer,
                "contexts": [{"score": score, **_to_dict(c)} for score, c in contexts],
            }
            for query, contexts in found
        ]
        print(srsly.json_dumps(results, indent=2))
    else:
        print_tables(found)


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
    nlp, elmo, tokenized = load_elmo(weights, pipeline, lang, tokenized, layer)
    tokens = [_find_word(nlp, query, tokenized) for query in queries]
    segmenter = elmo.model.attrs["segmenter"]
    batches = read_batches(nlp, files, segmenter, tokenized=tokenized, limit=limit)
    return find_neighbors(elmo, tokens, batches, layer=layer, n=n, same_word=same_word)


def print_tables(found: List["Neighbors"]) -> None:
    """Print a table for each query, the words one below the other."""
    for query, contexts in found:
        msg.divider(query.word)
        rows = [
            ("", query),
            *((f"{score:.3f}", context) for score, context in contexts),
        ]
        width = max(len(context.word) for _, context in rows)
        columns = shutil.get_terminal_size((100, 24)).columns
        side = max(12, (columns - MARGIN - width) // 2)
        msg.table(
            [
                (
                    score,
                    _shorten(context.text[: context.start].strip()[::-1], side)[::-1],
                    context.word,
                    _shorten(context.text[context.end :].strip(), side),
                )
                for score, context in rows
            ],
            header=("cosine", "", "", ""),
            aligns=("r", "r", "c", "l"),
            fg_colors=(None, None, "yellow", None),
            max_col=max(side, width),
            spacing=2,
        )
        if not contexts:
            msg.warn("There is no such word in the corpus.")


def write_page(path: Path, found: List["Neighbors"]) -> None:
    """Write a page on which displaCy highlights the words, with their scores."""
    from spacy import displacy
    from spacy.util import escape_html

    from ..storage import replacing

    pages = []
    for query, contexts in found:
        text, ents = "", []
        rows = [("query", QUERY_COLOR, query)]
        rows += [(f"{score:.3f}", CONTEXT_COLOR, c) for score, c in contexts]
        for label, color, context in rows:
            place = {"start": len(text) + context.start, "end": len(text) + context.end}
            ents.append({**place, "label": label, "params": {"bg": color}})
            text += context.text + "\n"
        pages.append({"text": text, "ents": ents, "title": escape_html(query.word)})
    page = displacy.render(pages, style="ent", manual=True, page=True, jupyter=False)
    with replacing(path.resolve()) as temporary:
        temporary.write_text(page, encoding="utf8")


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _to_dict(context: "Context") -> Dict[str, Any]:
    return {"word": context.word, **context._asdict()}


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
