"""Nearest contexts of a word, and nearest words (Peters et al. 2018, table 4)."""

import heapq
import re
from typing import (
    Any,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import numpy as np
import numpy.typing as npt
from spacy.attrs import ORTH
from spacy.tokens import Doc, Span, Token

from ..layers.vectors import Layer, select_layer
from .component import ELMo

Floats = npt.NDArray[np.float32]
# Vectors of words without a context; zero rows for words that have none.
StaticVectors = Callable[[List[str]], Floats]


class Context(NamedTuple):
    """A word in its sentence: text[start:end]."""

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text[self.start : self.end]


class Neighbors(NamedTuple):
    """What is near a query, the nearest first, with its cosine.

    query (Context): The word and its sentence.
    words (List[Tuple[float, str]]): Other words, by vectors without a context.
    contexts (List[Tuple[float, Context]]): Words in context, by the biLM.
    """

    query: Context
    words: List[Tuple[float, str]]
    contexts: List[Tuple[float, Context]]


class Nearest:
    """The n nearest of all that have been offered, each key once. It holds no more
    than those.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._heap: List[Tuple[float, int, Hashable, Any]] = []
        self._keys: Set[Hashable] = set()
        self._n_seen = 0

    @property
    def least(self) -> float:
        """What a score must be above to be among them."""
        return self._heap[0][0] if len(self._heap) == self.n else -np.inf

    def add(self, score: float, key: Hashable, item: Any) -> None:
        if key in self._keys or score <= self.least:
            return
        # Of two with the same score the earlier one is before the later.
        self._n_seen += 1
        entry = (score, -self._n_seen, key, item)
        self._keys.add(key)
        if len(self._heap) < self.n:
            heapq.heappush(self._heap, entry)
        else:
            self._keys.remove(heapq.heapreplace(self._heap, entry)[2])

    def sorted(self) -> List[Tuple[float, Any]]:
        ranked = sorted(self._heap, key=lambda entry: entry[:2], reverse=True)
        return [(score, item) for score, _, _, item in ranked]


class _Search(NamedTuple):
    """A query and what has been found for it."""

    query: Context
    key: Hashable
    contexts: Nearest
    words: Nearest


def find_neighbors(
    elmo: ELMo,
    queries: Sequence[Token],
    batches: Iterable[List[Doc]],
    *,
    layer: Layer = "top",
    n: int = 5,
    same_word: bool = False,
    static_vectors: Optional[StaticVectors] = None,
) -> List[Neighbors]:
    """Search a corpus once for the words whose vectors are nearest to those of some
    words in context. A Doc is not needed after its batch, and of sentences that the
    corpus repeats, one counts; the query's own never does.

    elmo (ELMo): Runs over the queries and the corpus.
    queries (Sequence[Token]): The words.
    batches (Iterable[List[Doc]]): The corpus.
    layer (int or str or Sequence[float]): See spacy_elmo.set_vector_hooks.
    n (int): How many neighbours for each query.
    same_word (bool): Compare with the same word only, in upper or lower case, and not
        with any word.
    static_vectors (Callable): Vectors of words without a context, for the words of
        the corpus. None takes layer 0 of the biLM.
    RETURNS (List[Neighbors]): One for each query.
    """
    own = [_predict(elmo, [token.doc])[0][token.i] for token in queries]
    vectors = _normalize(np.stack([select_layer(X, layer) for X in own]))
    lookup = static_vectors or (lambda words: np.stack([X[0] for X in own]))
    static = _normalize(lookup([token.text for token in queries]))
    segmenter = elmo.model.attrs["segmenter"]
    searches = [
        _Search(*_context(token, list(segmenter(token.doc))), Nearest(n), Nearest(n))
        for token in queries
    ]
    for docs in batches:
        for doc, layers in zip(docs, _predict(elmo, docs)):
            scores = _normalize(select_layer(layers, layer)) @ vectors.T
            spans = list(segmenter(doc))
            for search, column in zip(searches, scores.T):
                _add_contexts(search, doc, column, spans, same_word)
            words, first = _distinct_words(doc)
            table = static_vectors(words) if static_vectors else layers[first, 0]
            scores = _normalize(table) @ static.T
            for search, column in zip(searches, scores.T):
                _add_words(search.words, search.query.word, words, column)
    return [
        Neighbors(search.query, search.words.sorted(), search.contexts.sorted())
        for search in searches
    ]


def _add_contexts(
    search: _Search, doc: Doc, scores: Floats, spans: List[Span], same_word: bool
) -> None:
    wanted = search.query.word.lower()
    for i in _above(scores, search.contexts):
        token = doc[i]
        if not token.is_space and (not same_word or token.lower_ == wanted):
            context, key = _context(token, spans)
            if key != search.key:
                search.contexts.add(float(scores[i]), key, context)


def _add_words(nearest: Nearest, query: str, words: List[str], scores: Floats) -> None:
    for i in _above(scores, nearest):
        if words[i] != query:
            nearest.add(float(scores[i]), words[i], words[i])


def _above(scores: Floats, nearest: Nearest) -> Iterator[int]:
    """Where the scores are above the least, which rises meanwhile; the best first."""
    (found,) = np.nonzero(scores > nearest.least)
    for i in found[np.argsort(-scores[found], kind="stable")].tolist():
        if scores[i] <= nearest.least:
            return
        yield i


def _context(token: Token, spans: List[Span]) -> Tuple[Context, Hashable]:
    """A word in the sentence that the biLM has read, and a key that is the same for
    the same words, whatever blanks are between them.
    """
    sentence = next(span for span in spans if span.start <= token.i < span.end)
    tokens = [t for t in sentence if not t.is_space]
    start = tokens[0].idx
    end = tokens[-1].idx + len(tokens[-1])
    # A line break counts as one character, before and after.
    text = re.sub(r"\s", " ", token.doc.text[start:end])
    at = token.idx - start
    key = (tuple(t.text for t in tokens), tokens.index(token))
    return Context(text, at, at + len(token)), key


def _distinct_words(doc: Doc) -> Tuple[List[str], npt.NDArray[np.intp]]:
    """The words of a Doc, and where the first of each is."""
    _, first = np.unique(doc.to_array(ORTH), return_index=True)
    first = np.asarray([i for i in first.tolist() if not doc[i].is_space], np.intp)
    return [doc[i].text for i in first.tolist()], first


def _predict(elmo: ELMo, docs: List[Doc]) -> List[Floats]:
    return [elmo.model.ops.to_numpy(X) for X in elmo.predict(docs)]


def _normalize(X: Any) -> Floats:
    """Rows of length 1. Those of white space and of unknown words become NaN, which
    is above nothing.
    """
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    normalized: Floats = X / np.where(lengths > 0, lengths, np.float32(np.nan))
    return normalized
