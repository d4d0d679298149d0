"""A biLM and a text -> a vector for each word, whatever its context: the mean of its
contextual vectors (Bommasani et al. 2020, section 3).
"""

from typing import Dict, Iterable, List, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from spacy.tokens import Doc

from ..layers.doc_encoder import get_shim
from .component import ELMo
from .vector_hooks import Layer, select_layer

Floats2d = npt.NDArray[np.float32]
T = TypeVar("T", np.int64, np.float64)
Ints1d = npt.NDArray[np.int64]

# While a text is read, at most so many times as many words are kept as are wanted.
SPARE = 4
# Of the least squares, relative to the mean square of a feature.
RIDGE = 0.01


class StaticVectors(NamedTuple):
    """Words, and their vectors of shape (n_words, width)."""

    words: List[str]
    vectors: Floats2d


def average_contexts(
    elmo: ELMo,
    batches: Iterable[List[Doc]],
    *,
    layer: Layer = "top",
    max_words: int = 20_000,
    min_count: int = 1,
) -> StaticVectors:
    """The most frequent words of a text, each with the mean of its vectors in it.

    elmo (ELMo): Runs over the text.
    batches (Iterable[List[Doc]]): The text, which is read once. Memory is bounded:
        whenever there are more than SPARE * max_words words, the rarer half of them is
        forgotten (lossy counting).
    layer (int or str or Sequence[float]): See spacy_elmo.set_vector_hooks.
    max_words, min_count (int): Which words are kept at the end.
    RETURNS (StaticVectors): The words by falling frequency.
    """
    elmo.model.initialize()
    known: Dict[str, int] = {}
    counts: Ints1d = np.zeros(0, np.int64)
    sums = np.zeros((0, elmo.model.get_dim("nO")))
    for docs in batches:
        for doc, layers in zip(docs, elmo.predict(docs)):
            X = select_layer(elmo.model.ops.to_numpy(layers), layer)
            # A blank in a word would be two words in a file of vectors.
            tokens = [token for token in doc if len(token.text.split()) == 1]
            rows = [known.setdefault(token.text, len(known)) for token in tokens]
            counts, sums = _at_least(counts, len(known)), _at_least(sums, len(known))
            np.add.at(counts, rows, 1)
            np.add.at(sums, rows, X[[token.i for token in tokens]])
        if len(known) > SPARE * max_words:
            best = _most_frequent(counts[: len(known)], len(known) // 2)
            known = _renumber(known, best)
            counts, sums = counts[best], sums[best]
    best = _most_frequent(counts[: len(known)], max_words)
    best = best[counts[best] >= max(min_count, 1)]
    vectors = sums[best] / counts[best, None]
    return StaticVectors(list(_renumber(known, best)), vectors.astype(np.float32))


def add_words(elmo: ELMo, known: StaticVectors, words: Iterable[str]) -> StaticVectors:
    """Add words that a text lacks. Their vectors are predicted from their characters:
    by the least-squares map from the token layer of the known words to their vectors.
    """
    found = set(known.words)
    new = [word for word in dict.fromkeys(words) if word not in found]
    bilm = get_shim(elmo.model).bilm
    with torch.no_grad():
        x, x_new = (
            bilm.encode_words(part).double().cpu().numpy()
            for part in (known.words, new)
        )
    mean_x, mean_y = x.mean(axis=0), known.vectors.mean(axis=0)
    x -= mean_x
    A = x.T @ x + RIDGE * np.square(x).sum() / x.shape[1] * np.eye(x.shape[1])
    W = np.linalg.solve(A, x.T @ (known.vectors - mean_y))
    predicted = ((x_new - mean_x) @ W + mean_y).astype(np.float32)
    return StaticVectors(known.words + new, np.concatenate([known.vectors, predicted]))


def _at_least(x: npt.NDArray[T], n: int) -> npt.NDArray[T]:
    """An array with room for n rows; growth is doubling."""
    if n <= len(x):
        return x
    more = np.zeros((max(n, 2 * len(x)) - len(x), *x.shape[1:]), x.dtype)
    return np.concatenate([x, more])


def _most_frequent(counts: Ints1d, n: int) -> Ints1d:
    return np.argsort(-counts, kind="stable")[:n]


def _renumber(known: Dict[str, int], rows: Ints1d) -> Dict[str, int]:
    words = list(known)
    return {words[row]: i for i, row in enumerate(rows.tolist())}
