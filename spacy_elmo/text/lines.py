"""A file of text -> its lines, streamed; what is no UTF-8 is named."""

import codecs
import warnings
from pathlib import Path
from typing import Any, BinaryIO, Iterator, Union

from ..errors import Warnings, unusable
from .files import COMPRESSED

# PDF; .docx, .odt and .epub
BINARY = (b"%PDF", b"PK\x03\x04")
NO_TEXT = "is a binary file: get the text out of it first, for instance by pdftotext"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# With more lines than this that are not UTF-8, and more than a tenth: another encoding.
MAX_BROKEN_LINES = 1000
# A shorter text: with more than these, and more than a tenth.
FEW_BROKEN_LINES = 10
CONVERT = "Convert the file, for instance by 'iconv -f latin1 -t utf8'"
CONVERT_UTF16 = "is UTF-16. Convert it: 'iconv -f utf16 -t utf8'"
CONVERT_RETURNS = r"has lines that end in \r alone. Convert it: tr '\r' '\n'"


def open_text(path: Path) -> Any:
    """Open a file, which may be compressed, for reading bytes."""
    import smart_open  # spaCy brings it

    if path.suffix.lower() in COMPRESSED and path.is_file() and not path.stat().st_size:
        raise unusable(path, "is empty, and no archive")
    try:
        # A relative name with a colon would be a URL.
        return smart_open.open(path.absolute(), "rb")
    except ImportError as e:
        problem = f"needs another package ({e}): pip install 'smart-open[zst]'"
        raise unusable(path, problem) from None


def read_lines(
    path: Union[str, Path], file: BinaryIO, *, strict: bool = False
) -> Iterator[str]:
    """The lines of an open file, which errors call `path`, without white space around
    them. `strict` as in `read_documents`.
    """
    number = n = first = 0
    # Only "\n" ends a line: JSON strings may hold the other line separators.
    for number, raw in enumerate(file, 1):
        if number == 1:
            raw = _first_line(path, raw)
        try:
            line = raw.decode("utf8")
        except UnicodeDecodeError as e:
            if strict:
                problem = f"line {number} is not UTF-8 (byte 0x{raw[e.start]:02x})"
                problem = NO_TEXT if b"\0" in raw else f"{problem}. {CONVERT}"
                raise unusable(path, problem) from None
            line = raw.decode("utf8", "replace")
            n, first = n + 1, first or number
            if n > MAX_BROKEN_LINES and n > number / 10:
                problem = f"of the first {number:,} lines, {n:,} are not UTF-8"
                raise unusable(path, f"{problem}. {CONVERT}") from None
        yield line.strip()
    if n > FEW_BROKEN_LINES and n > number / 10:
        problem = f"of {number:,} lines, {n:,} are not UTF-8"
        raise unusable(path, f"{problem}. {CONVERT}")
    if n:
        warning = Warnings.W005.format(path=path, n=n, first=first)
        warnings.warn(warning, stacklevel=2)


def _first_line(path: Union[str, Path], raw: bytes) -> bytes:
    """The first line of a file without its byte order mark.

    RAISES (CorpusError): If the file is UTF-16, has no line ends but "\\r", or is no
        text.
    """
    if raw.startswith(UTF16):
        raise unusable(path, CONVERT_UTF16)
    if raw.startswith(BINARY):
        raise unusable(path, NO_TEXT)
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\r" in raw and not raw.endswith(b"\n"):
        raise unusable(path, CONVERT_RETURNS)
    if b"\0" in raw:  # UTF-16 without a mark is valid UTF-8 if all letters are ASCII
        try:
            raw.decode("utf8")
        except UnicodeDecodeError:
            raise unusable(path, NO_TEXT) from None
        if raw.count(b"\0") > len(raw) // 4:
            raise unusable(path, CONVERT_UTF16)
    return raw
