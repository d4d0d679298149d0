from threading import Lock
from typing import Dict, List, Sequence

import numpy as np
import torch
from torch import Tensor

from ..bilm import BiLM
from ..bilm.characters import BOS, EOS


class WordCache:
    """Token vectors of words, which depend on nothing but the word: each is encoded
    once for as long as it stays here. Full, the cache starts anew with the words of
    the batch at hand; the frequent ones are back at once. Safe under threads: a row
    that was written never changes.

    max_bytes (int): Size of the vectors kept between calls.
    """

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        self._lock = Lock()
        self._rows: Dict[str, int] = {}
        self._table = torch.empty(0, 0)

    @torch.no_grad()
    def lookup(self, bilm: BiLM, words: Sequence[str]) -> Tensor:
        """The token vectors of words, behind those of <S> and </S>.

        RETURNS (Floats2d): Shape (2 + n_words, projection).
        """
        wanted = [BOS, EOS, *words]
        with self._lock:
            table = self._table
            rows = np.array([self._rows.get(word, -1) for word in wanted])
        is_new = rows < 0
        if not is_new.any():
            return table[torch.from_numpy(rows)]
        new = [wanted[i] for i in np.flatnonzero(is_new)]
        encoded = bilm.encode_words(new)
        found = encoded.new_empty(len(wanted), encoded.shape[1])
        found[torch.from_numpy(is_new)] = encoded
        if not is_new.all():
            found[torch.from_numpy(~is_new)] = table[torch.from_numpy(rows[~is_new])]
        self._keep(new, encoded)
        return found

    def _keep(self, words: List[str], vectors: Tensor) -> None:
        width = vectors.shape[1]
        capacity = self.max_bytes // (width * vectors.element_size())
        with self._lock:
            fresh = {w: i for i, w in enumerate(words) if w not in self._rows}
            if len(self._rows) + len(fresh) > capacity:
                self._rows, self._table = {}, vectors.new_empty(0, width)
                fresh = {w: i for i, w in enumerate(words)}
                if len(fresh) > capacity:
                    return
            start, end = len(self._rows), len(self._rows) + len(fresh)
            if end > len(self._table):
                # Doubled, so that a stream of new words costs no copy for each.
                grown = vectors.new_empty(min(capacity, max(end, 2 * start)), width)
                if start:
                    grown[:start] = self._table[:start]
                self._table = grown
            rows = torch.tensor(list(fresh.values()), dtype=torch.int64)
            self._table[start:end] = vectors[rows]
            self._rows.update(zip(fresh, range(start, end)))

    def after_fork(self) -> None:
        """In a forked process: a thread of the parent may have held the lock, and
        have been at work on the rows.
        """
        if self._lock.locked():
            self.clear()

    # Nothing of it travels with a pickled or copied pipeline.
    def __getstate__(self) -> Dict[str, int]:
        return {"max_bytes": self.max_bytes}

    def __setstate__(self, state: Dict[str, int]) -> None:
        self.max_bytes = state["max_bytes"]
        self.clear()
