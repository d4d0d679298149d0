"""SHA-256 of files, however large."""

import hashlib
from pathlib import Path
from typing import BinaryIO, Union

CHUNK_BYTES = 1 << 20


def sha256(file: Union[Path, BinaryIO]) -> str:
    """The digest of a file.

    file (Path or BinaryIO): Its path, or the file, open for reading and at its start.
    RETURNS (str): In hexadecimal digits.
    """
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return sha256(opened)
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
