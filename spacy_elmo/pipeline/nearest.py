"""The contexts that are nearest to that of a word (Peters et al. 2018, table 4)."""

import re
from heapq import nlargest
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc, Span, Token

from .component import ELMo
from .vector_hooks import Floats, Layer, select_layer


class Context(NamedTuple):
    """A word in its sentence, text[start:end], and its cosine with that of a query."""

    word: str
    text: str
    start: int
    end: int
    score: float = 1.0


Key = Tuple[Tuple[str, ...], int]  # the words of a sentence, and which of them


def find_neighbors(
    elmo: ELMo,
    queries: Sequence[Token],
    batches: Iterable[List[Doc]],
    *,
    layer: Layer = "top",
    n: int = 5,
) -> List[List[Context]]:
    """Search a corpus once for the words whose vectors are nearest to those of some
    words in context. No Doc is kept after its batch. A sentence that the corpus repeats
    counts once, and the query's own never does.

    layer (int or str or Sequence[float]): See spacy_elmo.set_vector_hooks.
    RETURNS (List[List[Context]]): Each query, followed by its neighbors, the nearest
        first.
    """
    segmenter = elmo.model.attrs["segmenter"]
    rows = [next(_vectors(elmo, [token.doc], layer))[token.i] for token in queries]
    columns = np.stack(rows, axis=1)
    own = [_context(token, list(segmenter(token.doc))) for token in queries]
    best: List[Dict[Key, Context]] = [{} for _ in queries]
    for docs in batches:
        for doc, X in zip(docs, _vectors(elmo, docs, layer)):
            spans = list(segmenter(doc))
            for q, scores in enumerate((X @ columns).T):
                full = len(best[q]) == n
                least = min(c.score for c in best[q].values()) if full else -np.inf
                for i in np.flatnonzero(scores > least).tolist():
                    context, key = _context(doc[i], spans)
                    if key[0] != own[q][1][0]:
                        context = context._replace(score=float(scores[i]))
                        best[q].setdefault(key, context)
                found = nlargest(n, best[q].items(), key=lambda item: item[1].score)
                best[q] = dict(found)
    return [[query, *found.values()] for (query, _), found in zip(own, best)]


def _context(token: Token, spans: List[Span]) -> Tuple[Context, Key]:
    """A word in the sentence that the biLM has read, and its key, which white space
    does not change.
    """
    sentence = next(span for span in spans if span.start <= token.i < span.end)
    tokens = [t for t in sentence if not t.is_space]
    start = tokens[0].idx
    end = tokens[-1].idx + len(tokens[-1])
    # A line break counts as one character, before and after.
    text = re.sub(r"\s", " ", token.doc.text[start:end])
    at = token.idx - start
    key = (tuple(t.text for t in tokens), tokens.index(token))
    return Context(token.text, text, at, at + len(token)), key


def _vectors(elmo: ELMo, docs: List[Doc], layer: Layer) -> Iterator[Floats]:
    """Rows of length 1. Those of white space are NaN, which never compares greater."""
    for layers in elmo.predict(docs):
        X = select_layer(elmo.model.ops.to_numpy(layers), layer)
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        lengths[lengths == 0] = np.nan
        yield X / lengths
