"""Files on disk: replaced as a whole, written as HDF5, locked, hashed."""

import hashlib
import io
import os
import secrets
import shutil
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Iterator, Optional, Union

# torch brings it, and needs it too.
from filelock import FileLock, Timeout


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it if the block succeeds:
    a reader sees the old file or the new one, never a part. A pipe or device is
    written to directly, and a symbolic link stays one.

    RAISES (OSError): If it cannot be written, with the name of `path`.
    """
    if path.exists() and not path.is_file():
        yield path  # as it is: /dev/stdout may lead to a pipe, which has no path
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.touch(exist_ok=False)  # or fail before the work
        yield temporary
        os.replace(temporary, path)
    except OSError as e:
        # A full disk's error names no file. Other errors name it as str or as Path.
        is_ours = e.filename is None or str(e.filename) == str(temporary)
        if e.errno is None or not is_ours:
            raise
        raise OSError(e.errno, e.strerror, str(path)) from None
    finally:
        with suppress(OSError):  # mostly, it is not there
            temporary.unlink()


def sync(path: Path) -> None:
    """Write a file to the disk itself: else a power failure could leave it empty or
    damaged under the name that it gets next.
    """
    with path.open("r+b") as file:  # Windows wants it open for writing
        os.fsync(file.fileno())


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove what `replacing` left of files of that name (*: any) when it was killed.
    No other process may be writing to them.
    """
    for left in folder.glob(f".{name}.{'[0-9a-f]' * 8}"):
        left.unlink()


@contextmanager
def temporary_folder(folder: Path, prefix: str) -> Iterator[Path]:
    """A folder in another one. Those of processes that were killed are removed: no
    other one may be working there under this prefix.
    """
    for left in folder.glob(f"{prefix}{'?' * 8}"):
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, dir=folder) as name:
        yield Path(name)


def beside(path: Path, name: str) -> Path:
    """A file in a folder, given the folder or another file in it. Nothing is beside an
    archive: what lies around it is not of its model.
    """
    is_model = path.is_dir() or path.suffix.lower() == ".zip"
    return (path if is_model else path.parent) / name


@contextmanager
def create_hdf5(path: Path, **options: Any) -> Iterator[Any]:
    """Open an HDF5 file for writing; an existing one is overwritten.

    **options: For h5py.File.
    RAISES (OSError): If it cannot be written, for instance on a full disk.
    """
    import h5py

    with _Target(path, "w+") as target:
        try:
            with h5py.File(target, "w", **options) as h5:
                yield h5
        finally:
            if target.failure is not None:
                code, reason = target.failure.errno, target.failure.strerror
                raise OSError(code, reason, str(path)) from None


class _Target(io.FileIO):
    """A file that hides write errors from HDF5, which would try again on close and at
    exit, and crash.
    """

    failure: Optional[OSError] = None

    def write(self, data: Any) -> int:
        left = memoryview(data)
        try:
            while self.failure is None and len(left):
                left = left[super().write(left) :]
        except OSError as e:
            self.failure = e
        return len(data)

    def truncate(self, size: Optional[int] = None) -> int:
        try:
            if self.failure is None:
                return super().truncate(size)
        except OSError as e:
            self.failure = e
        return size or 0


@contextmanager
def hold(path: Path, busy: Optional[Exception] = None) -> Iterator[None]:
    """Hold a lock while the block runs. When a process ends, even if it is killed, the
    system releases its lock.

    path (Path): A file that exists as long as the lock is held.
    busy (Exception): Raised if another process holds the lock; None waits for it.
    RAISES (OSError): If the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=-1 if busy is None else 0):
            try:
                yield
            finally:
                # While it is held: a process that waits for this file then sees that
                # it is gone, and makes another. On Windows, FileLock removes it.
                with suppress(OSError):
                    path.unlink()
    except Timeout as e:
        raise busy or e from None


def sha256(file: Union[Path, BinaryIO]) -> str:
    """The digest of a file, given its path or open at its start."""
    digest = hashlib.sha256()
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as opened:
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
