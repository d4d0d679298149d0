"""Static vectors: for each word of a text the mean of its contextual vectors there
(Bommasani et al. 2020, section 3).
"""

from collections import Counter, defaultdict
from typing import Any, Collection, DefaultDict, Iterable, List, Tuple

import numpy as np
import torch
from spacy.tokens import Doc

from ..layers.doc_encoder import get_shim
from .component import ELMo
from .vector_hooks import Floats, Layer, select_layer

# While a text is read, up to this many times the words that are wanted are kept.
SPARE = 4
# The ridge of the least squares, relative to the mean square of a feature.
RIDGE = 0.01


def average_contexts(
    elmo: ELMo,
    batches: Iterable[List[Doc]],
    *,
    layer: Layer = "top",
    max_words: int = 20_000,
    min_count: int = 1,
    keep: Collection[str] = (),
) -> Tuple[List[str], Floats]:
    """The most frequent words of a text, each with the mean of its vectors in it.

    batches (Iterable[List[Doc]]): The text, which is read once. Memory is bounded:
        whenever there are more than SPARE * max_words words, the rarer half of them is
        forgotten (lossy counting).
    keep (Collection[str]): Words that are neither forgotten nor too rare.
    layer (int or str or Sequence[float]): See spacy_elmo.set_vector_hooks.
    RETURNS (Tuple[List[str], Floats]): The words by falling frequency, and their
        vectors, shape (n_words, width).
    """
    elmo.model.initialize()
    width, kept = elmo.model.get_dim("nO"), set(keep)
    counts: Counter[str] = Counter()
    sums: DefaultDict[str, Any] = defaultdict(lambda: np.zeros(width))
    for docs in batches:
        for doc, layers in zip(docs, elmo.predict(docs)):
            X = select_layer(layers, layer)
            for token, x in zip(doc, X):
                if _is_one_word(token.text):
                    counts[token.text] += 1
                    sums[token.text] += x
        if len(counts) > SPARE * max_words + len(kept):
            for word, _ in counts.most_common()[len(counts) // 2 :]:
                if word not in kept:
                    del counts[word], sums[word]
    words = [
        word
        for rank, (word, n) in enumerate(counts.most_common())
        if (rank < max_words and n >= min_count) or word in kept
    ]
    means = [sums[word] / counts[word] for word in words]
    return words, np.array(means, dtype=np.float32).reshape(-1, width)


def add_words(
    elmo: ELMo, known: List[str], vectors: Floats, words: Iterable[str]
) -> Tuple[List[str], Floats]:
    """Add words that a text lacks. Their vectors are predicted from their characters,
    by the least-squares map from the token layer to the vectors of the known words.
    Words with white space are left out.
    """
    found = set(known)
    new = [w for w in dict.fromkeys(words) if w not in found and _is_one_word(w)]
    bilm = get_shim(elmo.model).bilm
    with torch.no_grad():
        x, x_new = (
            bilm.encode_words(part).double().cpu().numpy() for part in (known, new)
        )
    mean_x, mean_y = x.mean(axis=0), vectors.mean(axis=0)
    x -= mean_x
    # One known word has no variance: W is 0, and all get the mean.
    variance = max(np.square(x).sum() / x.shape[1], 1e-12)
    A = x.T @ x + RIDGE * variance * np.eye(x.shape[1])
    W = np.linalg.solve(A, x.T @ (vectors - mean_y))
    predicted = ((x_new - mean_x) @ W + mean_y).astype(np.float32)
    return known + new, np.concatenate([vectors, predicted])


def _is_one_word(text: str) -> bool:
    """A space in a word would make two words of it in a file of vectors."""
    return text.split() == [text]
