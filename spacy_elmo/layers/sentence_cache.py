import hashlib
import json
import math
import sqlite3
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from ..bilm import BiLM
from ..errors import Errors, Warnings

Floats3d = npt.NDArray[np.float32]

# Seconds to wait while another process writes to the file: far longer than it takes
# to write the sentences of a batch.
TIMEOUT = 10.0

_inherited: List[Optional[sqlite3.Connection]] = []


class SentenceCache:
    """The layers of sentences, for training: while the biLM is frozen, what it gives
    for a sentence never changes, and every epoch asks for it again.

    Closed until `open`: text that is only predicted is seldom read twice. Once open,
    it keeps what is predicted as well, for the evaluations between updates. Once full,
    it stays as it is: epochs read the same sentences in turn, so that whatever makes
    room for others would be asked for before them.

    max_bytes (int): Memory for the layers, 0 for none.
    folder (str or Path): Keeps them on disk as well, for other processes and later
        runs, in a file for each biLM. Not bounded.
    """

    def __init__(self, max_bytes: int, folder: Optional[Union[str, Path]] = None):
        self.max_bytes = max_bytes
        self.folder = None if folder is None else Path(folder)
        self.clear()

    def clear(self) -> None:
        """Forget everything but what is on disk, and close."""
        self.n_bytes = 0
        self.is_open = False
        self._layers: Dict[str, Floats3d] = {}
        self._shape: Tuple[int, int] = (0, 0)
        self._disk: Optional[sqlite3.Connection] = None

    def open(self, bilm: BiLM, precision: str) -> None:
        """Start to keep layers.

        bilm (BiLM): What computes them: it names the file on disk.
        precision (str): Its precision.
        RAISES (OSError): If the folder cannot be used.
        """
        if self.is_open:
            return
        self._shape = (bilm.options.n_layers, bilm.options.width)
        if self.folder is not None:
            with self._trying():
                self._disk = _connect(
                    self.folder / f"{digest(bilm)}-{precision}.sqlite"
                )
        self.is_open = self.max_bytes > 0 or self._disk is not None

    def get(self, sentences: Sequence[List[str]]) -> List[Optional[Floats3d]]:
        """The layers of each sentence, (n_words, L + 1, width), or None."""
        if not self.is_open:
            return [None] * len(sentences)
        return [self._find(sentence) for sentence in sentences]

    def put(self, sentences: List[List[str]], layers: Sequence[Floats3d]) -> None:
        """Keep the layers of sentences, if there is room."""
        if not self.is_open:
            return
        keys = [_key(sentence) for sentence in sentences]
        for key, X in zip(keys, layers):
            n_bytes = X.nbytes + len(key)
            if key not in self._layers and self.n_bytes + n_bytes <= self.max_bytes:
                self._layers[key] = X
                self.n_bytes += n_bytes
        if self._disk is not None:
            blobs = [X.tobytes() for X in layers]
            rows = [(key, blob, zlib.crc32(blob)) for key, blob in zip(keys, blobs)]
            # One transaction: others wait no longer than it takes to write a batch.
            with self._trying(), self._disk as disk:
                disk.executemany("INSERT OR REPLACE INTO layers VALUES (?, ?, ?)", rows)

    def _find(self, sentence: List[str]) -> Optional[Floats3d]:
        key = _key(sentence)
        if key in self._layers or self._disk is None:
            return self._layers.get(key)
        blob = crc = None
        with self._trying():
            sql = "SELECT layers, crc FROM layers WHERE words = ?"
            blob, crc = self._disk.execute(sql, (key,)).fetchone() or (None, None)
        # A damaged row is none, and is written again.
        shape = (len(sentence), *self._shape)
        if not isinstance(blob, bytes) or len(blob) != 4 * math.prod(shape):
            return None
        if zlib.crc32(blob) != crc:
            return None
        return np.frombuffer(blob, np.float32).reshape(shape)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        """A disk that fails, is full or stays locked ends its use and not the training:
        the layers are computed again.
        """
        try:
            yield
        except sqlite3.Error as e:
            self._disk = None
            self.is_open = self.max_bytes > 0
            warning = Warnings.W004.format(path=self.folder, reason=e)
            warnings.warn(warning, stacklevel=2)

    def after_fork(self) -> None:
        """In a forked process: SQLite's connections must not be used on both sides,
        nor closed here.
        """
        _inherited.append(self._disk)
        self._disk = None
        self.is_open = self.is_open and self.max_bytes > 0

    # Nothing of it travels with a pickled or copied pipeline.
    def __reduce__(self) -> Tuple[type, Tuple[int, Optional[Path]]]:
        return SentenceCache, (self.max_bytes, self.folder)


def digest(bilm: BiLM) -> str:
    """Names a biLM by its weights and geometry."""
    found = hashlib.sha256(repr(bilm.options).encode("utf8"))
    for name, param in sorted(bilm.named_parameters()):
        found.update(name.encode("utf8"))
        found.update(np.ascontiguousarray(param.detach().cpu().numpy()).data)
    return found.hexdigest()[:16]


def _key(sentence: List[str]) -> str:
    return json.dumps(sentence)


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file, or make it.

    RAISES (OSError): If it is none of ours, or cannot be made.
    RAISES (sqlite3.OperationalError): If it stays locked.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        disk = sqlite3.connect(path, timeout=TIMEOUT, check_same_thread=False)
        # Losing the last sentences in a power failure costs their computation only.
        disk.execute("PRAGMA synchronous = OFF")
        disk.execute(
            "CREATE TABLE IF NOT EXISTS layers"
            " (words TEXT PRIMARY KEY, layers BLOB, crc INTEGER)"
        )
        disk.commit()
    except (OSError, sqlite3.Error) as e:
        if "locked" in str(e):
            raise
        raise OSError(Errors.E040.format(path=path, reason=e)) from None
    return disk
