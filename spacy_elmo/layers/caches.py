"""Token vectors of words and, in training, layers of sentences that the biLM need not
compute again. A pickled or copied pipeline starts with empty caches.
"""

import json
import os
import sqlite3
import warnings
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from ..bilm import BiLM
from ..bilm.characters import word_key
from ..bilm.model import Floats3d
from ..errors import Warnings

# Seconds to wait for another process: far longer than it takes to write a batch.
DISK_TIMEOUT = 10.0


class WordCache:
    """Token vectors of words. A vector depends on its word alone, so each word is
    encoded once. A full cache starts over with the words at hand; the frequent ones
    are soon back.
    """

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        self._rows: Dict[Union[str, bytes], int] = {}  # by what is read of a word
        self._table = torch.empty(0, 0)

    def __len__(self) -> int:
        """How many words are kept."""
        return len(self._rows)

    @torch.inference_mode(False)  # what is kept is used outside of it too
    @torch.no_grad()
    def lookup(self, bilm: BiLM, words: List[str]) -> Tensor:
        """The token vectors of distinct words, shape (n_words, projection)."""
        width = bilm.options.lstm.projection_dim
        capacity = self.max_bytes // (4 * width)
        n = bilm.options.char_cnn.max_characters_per_token
        keys = [word_key(word, n) for word in words]
        new = {key: w for key, w in zip(keys, words) if key not in self._rows}
        if len(self) + len(new) > capacity:
            self.clear()
            new = dict(zip(keys, words))
        if len(new) > capacity:
            return bilm.encode_words(words)
        if new:
            vectors = bilm.encode_words(list(new.values()))
            start, end = len(self), len(self) + len(new)
            if end > len(self._table):
                grown = vectors.new_empty(min(capacity, 2 * end), width)
                if start:
                    grown[:start] = self._table[:start]
                self._table = grown
            self._table[start:end] = vectors
            self._rows.update(zip(new, range(start, end)))
        rows = [self._rows[key] for key in keys]
        chosen = torch.tensor(rows, dtype=torch.int64).to(self._table.device)
        return self._table.index_select(0, chosen)

    def __reduce__(self) -> Any:
        return WordCache, (self.max_bytes,)


def _crc(key: str, blob: bytes) -> int:
    return zlib.crc32(blob, zlib.crc32(key.encode()))


class SentenceCache:
    """The layers of sentences, for training: those of a frozen biLM never change, and
    every epoch asks for them again.

    Closed until `open`: text that is only predicted is seldom read twice. Once open,
    it also keeps what is predicted, for the evaluations between updates. Once full, it
    keeps what it has: epochs repeat the same sentences, so an evicted one would
    be needed again before the one that replaced it.

    max_bytes (int): Memory for the layers, 0 for none.
    folder (str): Keeps them on disk as well, for other processes and later runs, in a
        file for each biLM and precision. Not bounded.
    """

    def __init__(self, max_bytes: int, folder: Optional[str] = None):
        self.max_bytes = max_bytes
        self.folder = folder or None  # "", as a command line sets it, is no folder
        self.clear()

    def clear(self) -> None:
        """Forget everything but what is on disk, and close."""
        self.n_bytes = 0
        self.is_open = False
        self._layers: Dict[str, Floats3d] = {}
        self._shape: Tuple[int, int] = (0, 0)
        self._file: Optional[Path] = None

    def open(self, bilm: BiLM, digest: str) -> None:
        """Start to keep the layers of a biLM."""
        if self.is_open or not (self.max_bytes or self.folder):
            return
        self.is_open = True
        self._shape = (bilm.options.n_layers, bilm.options.width)
        if self.folder is not None:
            name = f"{digest}-{bilm.precision}.sqlite"
            self._file = Path(os.path.expanduser(self.folder), name)
            self._on_disk(
                "CREATE TABLE IF NOT EXISTS layers"
                " (words TEXT PRIMARY KEY, layers BLOB, crc INTEGER)", [()],
            )  # fmt: skip

    def get(self, sentences: Sequence[List[str]]) -> List[Optional[Floats3d]]:
        """The layers of each sentence, (n_words, L + 1, width), or None."""
        if not self.is_open:
            return [None] * len(sentences)
        keys = [json.dumps(sentence) for sentence in sentences]
        found = [self._layers.get(key) for key in keys]
        new = [i for i, layers in enumerate(found) if layers is None]
        sql = "SELECT layers, crc FROM layers WHERE words = ?"
        for i, row in zip(new, self._on_disk(sql, [(keys[i],) for i in new])):
            layers = found[i] = self._decode(keys[i], row, len(sentences[i]))
            if layers is not None:
                self._keep(keys[i], layers)
        return found

    def put(self, sentences: List[List[str]], layers: Sequence[Floats3d]) -> None:
        """Keep the layers of sentences, if there is room."""
        if not self.is_open:
            return
        keys = [json.dumps(sentence) for sentence in sentences]
        for key, X in zip(keys, layers):
            self._keep(key, X)
        blobs = [X.tobytes() for X in layers] if self._file else []
        rows = [(key, blob, _crc(key, blob)) for key, blob in zip(keys, blobs)]
        self._on_disk("INSERT OR REPLACE INTO layers VALUES (?, ?, ?)", rows)

    def _keep(self, key: str, X: Floats3d) -> None:
        n_bytes = X.nbytes + len(key)
        if key not in self._layers and self.n_bytes + n_bytes <= self.max_bytes:
            self._layers[key] = X
            self.n_bytes += n_bytes

    def _decode(self, key: str, row: Any, n_words: int) -> Optional[Floats3d]:
        """The layers in a row of the file; None if it is damaged."""
        blob, crc = row or (b"", None)
        try:
            layers = np.frombuffer(blob, np.float32).reshape(n_words, *self._shape)
        except (TypeError, ValueError):
            return None
        return layers if _crc(key, blob) == crc else None

    def _on_disk(self, sql: str, rows: Sequence[Tuple[Any, ...]]) -> List[Any]:
        """Run a statement for each row, and fetch what it finds or None.

        The file is open for this one transaction only: others wait no longer than a
        batch takes, and a forked process inherits no connection. A file that is
        damaged, stays locked or cannot be written is given up.
        """
        if self._file is not None and rows:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with closing(sqlite3.connect(self._file, timeout=DISK_TIMEOUT)) as disk:
                    # What a power failure takes is computed again.
                    disk.execute("PRAGMA synchronous = OFF")
                    with disk:
                        return [disk.execute(sql, row).fetchone() for row in rows]
            except (OSError, sqlite3.Error) as e:
                warning = Warnings.W004.format(path=self._file, reason=e)
                warnings.warn(warning, stacklevel=2)
                self._file = None
        return [None] * len(rows)

    def __reduce__(self) -> Any:
        return SentenceCache, (self.max_bytes, self.folder)
