"""One process at a time."""

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterator

# torch's, which needs it too.
from filelock import FileLock, Timeout


@contextmanager
def hold(path: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold a lock while the block runs. The system takes it back from a process that
    ends, in whatever way.

    path (Path): Of the lock: a file that is there as long as it is held.
    busy (Callable[[], None]): Called where another process holds it. If it returns,
        that process is waited for.
    RAISES (OSError): If the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        busy()
        lock.acquire()
    try:
        yield
    finally:
        # While it is held: who waits for this file then sees that it is gone, and
        # makes another. Windows removes it in its own way.
        with suppress(OSError):
            path.unlink()
        lock.release()
