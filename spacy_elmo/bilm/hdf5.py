"""Datasets of numbers in HDF5 files, read with suspicion."""

import io
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Iterator, Optional, Union

import numpy as np
import numpy.typing as npt

from ..errors import Errors, WeightsError

# An attribute of our datasets: the CRC-32 of their numbers, little-endian. HDF5 itself
# would not notice a changed byte. Of the file: that all of them have it.
CHECKSUM = "crc32"
MAX_RATIO = 1000  # of a dataset's size in memory to that in the file
MAX_VALUE = 1e6  # no weight is near it; numbers read in a wrong format are beyond


@contextmanager
def open_hdf5(file: Union[Path, BinaryIO], name: str) -> Iterator[Any]:
    """Open an HDF5 file for reading; what h5py cannot read is a WeightsError."""
    import h5py

    try:
        h5 = h5py.File(file, "r")
    except (OSError, ValueError, RuntimeError) as e:
        raise WeightsError(Errors.E004.format(path=name, reason=e)) from None
    with h5:
        yield h5


@contextmanager
def create_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for writing; one that is there is written over.

    RAISES (OSError): If it cannot be written, for instance on a full disk.
    """
    import h5py

    with _Target(path, "w+") as target:
        try:
            with h5py.File(target, "w") as h5:
                yield h5
        finally:
            if target.failure is not None:
                code, reason = target.failure.errno, target.failure.strerror
                raise OSError(code, reason, str(path)) from None


class _Target(io.FileIO):
    """A file whose failures HDF5 does not hear of: it would try again when it closes
    the file and when the process ends, and crash there.
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


def read_dataset(h5: Any, name: str, path: str) -> npt.NDArray[np.float32]:
    """Read a dataset as float32, and check its numbers. `path` is named in errors."""
    try:
        problem = _problem_of_format(h5, h5[name])
        array = h5[name][()] if problem is None else None
        checksum = h5[name].attrs.get(CHECKSUM)
        if checksum is None and CHECKSUM in h5.attrs:
            problem = problem or "no checksum: the file is damaged"
    except Exception as e:  # h5py raises nearly anything on damaged files
        raise WeightsError(Errors.E004.format(path=path, reason=e)) from None
    if problem is None:
        problem = _problem_of_numbers(array, checksum)
    if problem is not None:
        raise WeightsError(Errors.E011.format(path=path, name=name, problem=problem))
    return np.asarray(array, dtype=np.float32)


def write_dataset(
    h5: Any, name: str, array: npt.NDArray[Any], dtype: str, **options: Any
) -> None:
    """Write numbers and their checksum.

    h5 (h5py.File): Open for writing.
    dtype (str): "float32" or "float16".
    **options: For h5py's `create_dataset`, such as a compression.
    RAISES (ValueError): If a number is too large for the dtype.
    """
    with np.errstate(over="ignore"):
        written = np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<"))
    if not np.isfinite(written).all():
        largest = np.abs(array).max()
        error = Errors.E042.format(name=name, value=largest, dtype=dtype)
        raise ValueError(error)
    dataset = h5.create_dataset(name, data=written, **options)
    h5.attrs[CHECKSUM] = True
    dataset.attrs[CHECKSUM] = np.uint32(zlib.crc32(written.data))


def _problem_of_format(h5: Any, dataset: Any) -> Optional[str]:
    from h5py import h5t

    kind = dataset.id.get_type()
    if dataset.dtype.kind != "f":
        return f"{dataset.dtype} instead of floating-point numbers"
    bits = (16, 32, 64)
    known = [getattr(h5t, f"IEEE_F{b}{end}") for b in bits for end in ("LE", "BE")]
    if not any(kind.equal(format) for format in known):
        return "floating-point numbers that are not of 16, 32 or 64 bits"
    elsewhere = dataset.file.filename != h5.filename
    if dataset.external or dataset.is_virtual or elsewhere:
        return "no numbers but a reference to another file"
    if dataset.nbytes > MAX_RATIO * max(dataset.id.get_storage_size(), 1 << 10):
        return f"{dataset.nbytes:,} bytes in {dataset.id.get_storage_size():,}"
    return None


def _problem_of_numbers(array: Any, checksum: Any) -> Optional[str]:
    # NaN comes through; and no copy is made of what may be large.
    extremes = [float(f(initial=0.0)) for f in (array.min, array.max)]
    if not np.isfinite(extremes).all():
        return "NaN or infinite numbers"
    if checksum is not None:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        if zlib.crc32(little.data) != checksum:
            return "other numbers than were written: the file is damaged"
    largest = max(-extremes[0], extremes[1])
    if largest > MAX_VALUE:
        return f"numbers up to {largest:.3g}, which are no weights"
    return None
