import re
import shutil
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, List, Optional, Tuple

import srsly
from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors
from . import inputs
from ._app import app

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Token

    from ..pipeline.nearest import Context, Scored

    Neighbors = List[Tuple[Context, List[Scored]]]

BRACKETS = re.compile(r"\[\s*([^\[\]\s][^\[\]]*?)\s*\]")
# Columns of a table beside the contexts: the score, the word and the gaps.
MARGIN = 32


@app.command("neighbors")
def neighbors_cli(
    corpus: str = inputs.TEXT,
    queries: List[str] = Arg(
        ...,
        metavar="QUERY...",
        help='Sentence with one word in brackets: "She made a fine [play] on the ball"',
    ),
    layer: str = Opt("top", "--layer", help=f"Layer to compare: {inputs.LAYERS}"),
    n: int = Opt(5, "--n", "-n", min=1, help="Number of neighbors"),
    limit: Optional[int] = Opt(None, "--limit", min=1, help="Tokens to search"),
    weights: Optional[str] = inputs.WEIGHTS,
    pipeline: Optional[str] = inputs.PIPELINE,
    lang: Optional[str] = inputs.LANG,
    tokenized: Optional[bool] = inputs.TOKENIZED,
    html_path: Optional[Path] = Opt(
        None, "--html", help="Write a page of the contexts here", dir_okay=False
    ),
    as_json: bool = inputs.JSON,
) -> None:
    """
    Search a corpus for the contexts that are nearest to that of a word, by the cosine
    of a layer of the biLM. The query's own sentence is no neighbor, and of a sentence
    that is repeated, one counts.
    """
    from ..pipeline.nearest import find_neighbors

    nlp, elmo, tokenized = inputs.load_elmo(weights, pipeline, lang, tokenized)
    choice = inputs.choose_layer(elmo, layer)
    tokens = [_find_word(nlp, query, tokenized) for query in queries]
    batches = inputs.read_batches(nlp, elmo, corpus, tokenized=tokenized, limit=limit)
    found = find_neighbors(elmo, tokens, batches, layer=choice, n=n)
    if as_json:
        results = []
        for query, contexts in found:
            neighbors = [{"score": score, **c.to_dict()} for score, c in contexts]
            results.append(
                {"query": query.to_dict(), "layer": layer, "contexts": neighbors}
            )
        print(srsly.json_dumps(results, indent=2))
    else:
        print_tables(found)
    if html_path is not None:
        write_page(html_path, found)


def print_tables(found: "Neighbors") -> None:
    """Print a table for each query, the words one below the other."""
    side = max(12, (shutil.get_terminal_size((100, 24)).columns - MARGIN) // 2)
    for query, contexts in found:
        msg.divider(query.word)
        rows = [_row("", query, side)]
        rows += [_row(f"{score:.3f}", context, side) for score, context in contexts]
        msg.table(
            rows,
            header=("cosine", "", "", ""),
            aligns=("r", "r", "c", "l"),
            fg_colors=(None, None, "yellow", None),
            max_col=side,
            spacing=2,
        )


def _row(score: str, context: "Context", side: int) -> Tuple[str, ...]:
    before, after = context.text[: context.start], context.text[context.end :]
    before = shorten(before[::-1], side, placeholder="...")[::-1]
    return score, before, context.word, shorten(after, side, placeholder="...")


def write_page(path: Path, found: "Neighbors") -> None:
    """Write a page on which displaCy highlights the words, with their scores."""
    from spacy import displacy
    from spacy.util import escape_html

    from ..storage import replacing

    pages = []
    for query, contexts in found:
        text, ents = "", []
        rows = [("query", "#feca74", query)]
        rows += [(f"{score:.3f}", "#9cc9cc", c) for score, c in contexts]
        for label, color, context in rows:
            place = {"start": len(text) + context.start, "end": len(text) + context.end}
            ents.append({**place, "label": label, "params": {"bg": color}})
            text += context.text + "\n"
        pages.append({"text": text, "ents": ents, "title": escape_html(query.word)})
    page = displacy.render(pages, style="ent", manual=True, page=True, jupyter=False)
    with replacing(path.resolve()) as temporary:
        temporary.write_text(page, encoding="utf8")


def _find_word(nlp: "Language", query: str, tokenized: bool) -> "Token":
    """The word in brackets, in its sentence without them."""
    from ..text import make_doc

    # A terminal may pass half a character.
    query = query.encode("utf8", "ignore").decode("utf8")
    if tokenized:
        query = " ".join(query.split())
    found = list(BRACKETS.finditer(query))
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
