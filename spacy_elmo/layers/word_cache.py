from typing import Dict, List, Tuple

import torch
from torch import Tensor

from ..bilm import BiLM


class WordCache:
    """Token vectors of words, which depend on nothing but the word: each is encoded
    once for as long as it stays here. When it is full, the cache starts anew with the
    words at hand; the frequent ones are back at once.

    max_bytes (int): Memory for the vectors.
    """

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        self._rows: Dict[str, int] = {}
        self._table = torch.empty(0, 0)

    def __len__(self) -> int:
        """How many words are kept."""
        return len(self._rows)

    @torch.no_grad()
    def lookup(self, bilm: BiLM, words: List[str]) -> Tensor:
        """The token vectors of distinct words.

        RETURNS (Floats2d): Shape (n_words, projection).
        """
        width = bilm.options.lstm.projection_dim
        capacity = self.max_bytes // (4 * width)
        new = [word for word in words if word not in self._rows]
        if len(self) + len(new) > capacity:
            self.clear()
            new = words
        if new:
            vectors = bilm.encode_words(new)
            if len(new) > capacity:
                return vectors
            if not len(self):
                # No memory is in use before its rows are written.
                self._table = vectors.new_empty(capacity, width)
            start, end = len(self), len(self) + len(new)
            self._table[start:end] = vectors
            self._rows.update(zip(new, range(start, end)))
        rows = [self._rows[word] for word in words]
        return self._table[torch.tensor(rows, dtype=torch.int64)]

    # Nothing of it travels with a pickled or copied pipeline.
    def __reduce__(self) -> Tuple[type, Tuple[int]]:
        return WordCache, (self.max_bytes,)
