from threading import Lock
from typing import Dict, List

import numpy as np
import torch
from torch import Tensor

from ..bilm import BiLM
from ..bilm.characters import BOS, EOS
from ..bilm.model import BOS_ROW, EOS_ROW


class WordCache:
    """Token vectors of words, which depend on nothing but the word: each is encoded
    once for as long as it stays here. Full, the cache starts anew with the words of
    the batch at hand; the frequent ones are back at once. Safe under threads.

    max_bytes (int): Size of the vectors kept between calls. A batch with more
        distinct words than that is encoded all the same.
    """

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        self._lock = Lock()
        self._rows: Dict[str, int] = {}
        self._table = torch.empty(0, 0)

    def lookup(self, bilm: BiLM, words: List[str]) -> Tensor:
        """The token vectors of distinct words, behind those of <S> and </S>.

        RETURNS (Floats2d): Shape (2 + n_words, projection).
        """
        wanted = [BOS, EOS, *words]
        with self._lock:
            rows, table = self._rows, self._table
        new = [word for word in wanted if word not in rows]
        if new:
            encoded = bilm.encode_words(list(dict.fromkeys(new)))
            rows, table = self._add(rows, table, new, encoded)
        index = np.fromiter((rows[word] for word in wanted), np.int64, len(wanted))
        found: Tensor = table[torch.from_numpy(index).to(table.device)]
        assert (BOS_ROW, EOS_ROW) == (0, 1)
        return found

    def _add(
        self, rows: Dict[str, int], table: Tensor, new: List[str], encoded: Tensor
    ) -> "tuple[Dict[str, int], Tensor]":
        """A table with more words. Tables in use elsewhere are never written to."""
        rows = dict(rows)
        for word in new:
            rows.setdefault(word, len(rows))
        table = encoded if not len(table) else torch.cat([table, encoded])
        if table.element_size() * table.nelement() <= self.max_bytes:
            with self._lock:
                self._rows, self._table = rows, table
        else:
            with self._lock:
                self._rows, self._table = {}, table.new_empty(0, 0)
        return rows, table

    # Nothing of it travels with a pickled or copied pipeline.
    def __getstate__(self) -> Dict[str, int]:
        return {"max_bytes": self.max_bytes}

    def __setstate__(self, state: Dict[str, int]) -> None:
        self.max_bytes = state["max_bytes"]
        self.clear()
