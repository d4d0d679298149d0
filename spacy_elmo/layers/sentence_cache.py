import hashlib
import sqlite3
import warnings
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Dict, Iterator, List, Optional, Union

import numpy as np
import numpy.typing as npt

from ..bilm import BiLM
from ..errors import Errors, Warnings

Floats = npt.NDArray[np.float32]

# How long a process waits while another one writes, in seconds.
TIMEOUT = 60

_inherited: List[Optional[sqlite3.Connection]] = []


class SentenceCache:
    """The layers of sentences, for training: while the biLM is frozen, what it gives
    for a sentence never changes, and every epoch asks for it again.

    Closed until `open`: text that is only predicted is seldom read twice. Once open it
    keeps what is predicted as well, for the evaluations between updates. Once full it
    stays as it is: epochs read the same sentences in turn, so that whatever makes
    room for others would be asked for before them. Safe under threads; several
    processes may share a folder.

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
        self._lock = Lock()
        self._layers: Dict[bytes, Any] = {}
        self._disk: Optional[sqlite3.Connection] = None

    def open(self, bilm: BiLM, precision: str) -> None:
        """Start to keep layers.

        bilm (BiLM): What computes them: it names the file on disk.
        precision (str): Of the layers.
        RAISES (OSError): If the folder cannot be used.
        """
        with self._lock:
            if self.is_open:
                return
            if self.folder is not None:
                self._disk = _open_file(self.folder, f"{digest(bilm)}-{precision}")
            self.is_open = self.max_bytes > 0 or self._disk is not None

    def get(self, key: bytes, out: Floats) -> bool:
        """Copy the layers of a sentence.

        key (bytes): The ids of its words.
        out (Floats3d): Receives them, (n_words, L + 1, width).
        RETURNS (bool): Whether they were there.
        """
        packed = self._layers.get(key)
        if packed is None and self._disk is not None:
            packed = self._read(key)
        if packed is None:
            return False
        # Layer 0 is the token twice, and is kept once.
        n, n_layers, width = out.shape
        packed = packed.reshape(n, -1)
        out[:, 0].reshape(n, 2, width // 2)[:] = packed[:, None, : width // 2]
        out[:, 1:] = packed[:, width // 2 :].reshape(n, n_layers - 1, width)
        return True

    def put(self, key: bytes, layers: Floats) -> None:
        """Keep the layers of a sentence, if there is room."""
        n, _, width = layers.shape
        packed = np.concatenate(
            [layers[:, 0, : width // 2], layers[:, 1:].reshape(n, -1)], axis=1
        )
        with self._lock:
            with self._trying():
                if self._disk is not None:
                    self._disk.execute(
                        "INSERT OR IGNORE INTO sentences VALUES (?, ?)",
                        (key, packed.tobytes()),
                    )
            n_bytes = packed.nbytes + len(key)
            if key not in self._layers and self.n_bytes + n_bytes <= self.max_bytes:
                self._layers[key] = packed
                self.n_bytes += n_bytes

    def commit(self) -> None:
        """Write what was put to the disk."""
        with self._lock, self._trying():
            if self._disk is not None:
                self._disk.commit()

    def _read(self, key: bytes) -> Optional[Floats]:
        """What the disk has for a sentence."""
        row = None
        with self._lock, self._trying():
            if self._disk is not None:
                row = self._disk.execute(
                    "SELECT layers FROM sentences WHERE words = ?", (key,)
                ).fetchone()
        return None if row is None else np.frombuffer(row[0], np.float32)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        """A failure of the disk, such as a full one, is its end and not that of the
        training: the layers are computed again.
        """
        try:
            yield
        except sqlite3.Error as e:
            self._disk = None
            self.is_open = self.max_bytes > 0
            warning = Warnings.W004.format(path=self.folder, reason=e)
            warnings.warn(warning, stacklevel=2)

    def after_fork(self) -> None:
        """In a forked process: a thread of the parent may have held the lock, and
        SQLite's connections must not be used on both sides, nor closed here.
        """
        _inherited.append(self._disk)
        self._disk = None
        self._lock = Lock()
        self.is_open = self.is_open and self.max_bytes > 0

    # Nothing of it travels with a pickled or copied pipeline.
    def __getstate__(self) -> Dict[str, Any]:
        return {"max_bytes": self.max_bytes, "folder": self.folder}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.max_bytes, self.folder = state["max_bytes"], state["folder"]
        self.clear()


def digest(bilm: BiLM) -> str:
    """Names a biLM by its weights and geometry."""
    found = hashlib.sha256(repr(bilm.options).encode("utf8"))
    for name, param in sorted(bilm.named_parameters()):
        found.update(name.encode("utf8"))
        found.update(np.ascontiguousarray(param.detach().cpu().numpy()).data)
    return found.hexdigest()[:16]


def _open_file(folder: Path, name: str) -> sqlite3.Connection:
    path = folder / f"{name}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        disk = sqlite3.connect(path, timeout=TIMEOUT, check_same_thread=False)
        # Losing the last sentences in a power failure costs their computation only.
        disk.execute("PRAGMA synchronous = OFF")
        disk.execute(
            "CREATE TABLE IF NOT EXISTS sentences (words BLOB PRIMARY KEY, layers BLOB)"
        )
        disk.commit()
    except (OSError, sqlite3.Error) as e:
        raise OSError(Errors.E040.format(path=path, reason=e)) from None
    return disk
