import re
from pathlib import Path
from typing import List, Optional

import srsly
from spacy.cli._util import Arg, Opt
from spacy.language import Language
from spacy.tokens import Token
from wasabi import msg

from ..errors import CorpusError, Errors, unusable
from ..text.documents import make_doc
from . import inputs
from ._app import app

BRACKETS = re.compile(r"\[\s*([^\[\]\s][^\[\]]*?)\s*\]")


@app.command("neighbors")
def neighbors_cli(
    corpus: str = inputs.TEXT,
    queries: List[str] = Arg(
        ...,
        metavar="QUERY...",
        help='Sentence with one word in brackets: "She made a fine [play] on the ball"',
    ),
    layer: str = Opt("top", "--layer", "-L", help=f"Layer to compare: {inputs.LAYERS}"),
    n: int = Opt(5, "--n", "-n", min=1, help="Number of neighbors"),
    limit: Optional[int] = Opt(
        None, "--limit", min=1, help="Stop after this many tokens"
    ),
    weights: Optional[str] = inputs.WEIGHTS,
    pipeline: Optional[str] = inputs.PIPELINE,
    lang: Optional[str] = inputs.LANG,
    tokenized: Optional[bool] = inputs.TOKENIZED,
    as_json: bool = inputs.JSON,
    code_path: Optional[Path] = inputs.CODE,
) -> None:
    """
    Search a corpus for the contexts nearest to that of a word. Nearest by the cosine
    of a layer of the biLM; the first row printed is the query. Its own sentence does
    not count, and a repeated sentence counts once.
    """
    from ..pipeline.nearest import find_neighbors

    nlp, tokenized = inputs.load_reader(weights, pipeline, lang, tokenized)
    elmo = inputs.find_elmo(nlp, pipeline)
    choice = inputs.choose_layer(elmo, layer)
    nlp.select_pipes(disable=[elmo.name, *inputs.components_after(nlp, elmo)])
    tokens = [_find_word(nlp, query, tokenized) for query in queries]
    read = inputs.read_batches(nlp, corpus, tokenized, limit)
    batches = (list(nlp.pipe(docs)) for docs in read)
    found = find_neighbors(elmo, tokens, batches, layer=choice, n=n)
    if as_json:
        results = []
        for query, *contexts in found:
            result = {"query": query._asdict(), "layer": layer}
            results.append({**result, "contexts": [c._asdict() for c in contexts]})
        print(srsly.json_dumps(results, indent=2))
        return
    for query, *contexts in found:
        msg.divider(query.word)
        for context in (query, *contexts):
            before, after = context.text[: context.start], context.text[context.end :]
            print(f"{context.score:.3f}  {before}[{context.word}]{after}")


def _find_word(nlp: Language, query: str, tokenized: bool) -> Token:
    """The word in brackets, in its sentence without them."""
    try:
        query.encode("utf8")
    except UnicodeEncodeError:  # as a terminal in another encoding sends it
        raise unusable(repr(query), "is not UTF-8") from None
    if tokenized:
        query = " ".join(query.split())
    before, *words = BRACKETS.split(query)
    if len(words) != 2:
        raise CorpusError(Errors.E120.format(query=query, found=len(words) // 2))
    word, after = words
    text = before + word + after
    doc = nlp(make_doc(nlp, text.split() if tokenized else text))
    end = len(before) + len(word)
    span = doc.char_span(len(before), end, alignment_mode="expand")
    found = [token.text for token in span or []]
    if span is None or found != [word]:
        tokens = ", ".join(map(repr, found))
        raise CorpusError(Errors.E121.format(query=query, word=word, tokens=tokens))
    return span[0]
