"""The contexts that are nearest to that of a word (Peters et al. 2018, table 4)."""

import re
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
                _keep_best(best[q], n, own[q][1], doc, spans, scores)
    nearest = [sorted(found.values(), key=lambda c: -c.score) for found in best]
    return [[query, *found] for (query, _), found in zip(own, nearest)]


def _keep_best(
    found: Dict[Key, Context],
    n: int,
    query: Key,
    doc: Doc,
    spans: List[Span],
    scores: Floats,
) -> None:
    """Put the words of a Doc into the n best that were found so far."""
    candidates = np.flatnonzero(scores > _least(found, n))
    for i in candidates[np.argsort(-scores[candidates], kind="stable")].tolist():
        if scores[i] <= _least(found, n):
            return
        context, key = _context(doc[i], spans)
        if key[0] != query[0]:
            found.setdefault(key, context._replace(score=float(scores[i])))
        if len(found) > n:
            del found[min(found, key=lambda key: found[key].score)]


def _least(found: Dict[Key, Context], n: int) -> float:
    """The score that a word must exceed to be among the n best."""
    return min(c.score for c in found.values()) if len(found) == n else -np.inf


def _context(token: Token, spans: List[Span]) -> Tuple[Context, Key]:
    """A word in the sentence that the biLM has read, and its key, which white space
    does not change.
    """
    sentence = next(span for span in spans if span.start <= token.i < span.end)
    tokens = [t for t in sentence if not t.is_space]
    # A line break counts as one character, before and after.
    text = re.sub(r"\s", " ", token.doc[tokens[0].i : tokens[-1].i + 1].text)
    at = token.idx - tokens[0].idx
    key = (tuple(t.text for t in tokens), tokens.index(token))
    return Context(token.text, text, at, at + len(token)), key


def _vectors(elmo: ELMo, docs: List[Doc], layer: Layer) -> Iterator[Floats]:
    """Rows of length 1. Those of white space are NaN, which never compares greater."""
    for layers in elmo.predict(docs):
        X = select_layer(layers, layer)
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        lengths[lengths == 0] = np.nan
        yield X / lengths
