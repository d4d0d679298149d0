"""Files of text -> documents, streamed: one document is in memory at a time."""

import codecs
import glob
import os
import warnings
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, NoReturn, Set, Union

import srsly
from spacy.attrs import LANG
from spacy.lang.lex_attrs import LEX_ATTRS
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from .errors import CorpusError, Errors, Warnings, looked_for, unusable

Text = Union[str, List[str], Doc]

SUFFIXES = (".txt", ".jsonl", ".spacy")
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
KNOWN = ".txt, .jsonl or .spacy (or one of them in .gz, .xz, .bz2 or .zst)"
# PDF; .docx, .odt and .epub
BINARY = (b"%PDF", b"PK\x03\x04")
NO_TEXT = "is a binary file: get the text out of it first, for instance by pdftotext"
ANNOTATED = (".conllu", ".conll", ".iob")
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# A text without empty lines would be one document; it is cut after this many lines.
MAX_DOCUMENT_LINES = 200
# With more lines than this that are not UTF-8, and more than a tenth: another encoding.
MAX_BROKEN_LINES = 1000
# A shorter text: with more than these, and more than a tenth.
FEW_BROKEN_LINES = 10
CONVERT = "Convert the file, for instance by 'iconv -f latin1 -t utf8'"
CONVERT_UTF16 = "is UTF-16. Convert it: 'iconv -f utf16 -t utf8'"
CONVERT_RETURNS = r"has lines that end in \r alone. Convert it: tr '\r' '\n'"
# What `init` makes, and the text that `pretrain` leaves in its folder
PROJECT, CORPUS, TEXT = "project.yml", "corpus", "text.txt"
RUN_FILES = ("vocab.txt", "log.jsonl", "batch-*.txt")
RULES = "spacy.Tokenizer.v1"  # spaCy's own tokenizer, which needs no package


def find_texts(path: Union[str, Path]) -> List[Path]:
    """The files of a corpus.

    path (str or Path): A file, a directory (searched through, links to folders too)
        or a glob. Of a directory, files with a known suffix, each once; a file or a
        glob may also name plain text that has none, as the shards of the 1 Billion
        Word Benchmark. What `pretrain` and `init` have made in a directory is no text.
    RETURNS (List[Path]): The files in order of their names.
    RAISES (CorpusError): If there are none, if one given is of another kind, or if a
        directory cannot be read.
    """
    path = os.path.expanduser(path)  # of a config, which no shell has read
    found = [Path(path)] if Path(path).is_file() else _search(path)
    if not found:
        where, problem = looked_for(path or "''"), _why_none(path)
        raise CorpusError(Errors.E050.format(path=where, problem=problem))
    for file in found:
        _require_text(file)
    return sorted(found)


def _search(path: str) -> List[Path]:
    """The texts in a directory, or the files of a glob."""
    if not _is_folder(path):
        files = filter(_is_there, map(Path, glob.glob(path, recursive=True)))
        return [file for file in files if not _is_made(file, file.parent)]
    found: Dict[Path, Path] = {}
    for file in sorted(_walk(path), key=lambda file: len(str(file))):
        if _kind(file) and _is_there(file) and not _is_made(file, Path(path)):
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _walk(path: str) -> Iterator[Path]:
    """The files of a directory, without the hidden ones of macOS and Jupyter.

    RAISES (CorpusError): If one of its directories cannot be read.
    """
    seen: Set[str] = set()
    roots = [path]
    for root in roots:  # which grows: links to directories come last, and each once
        for name, folders, files in os.walk(root, onerror=_refuse):
            real = os.path.realpath(name)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = [f for f in folders if not f.startswith(".")]
            roots += filter(os.path.islink, (os.path.join(name, f) for f in folders))
            yield from (Path(name, f) for f in files if not f.startswith("."))


def _refuse(error: OSError) -> NoReturn:
    raise unusable(error.filename, f"is not readable ({error.strerror})") from None


def _is_made(file: Path, base: Path) -> bool:
    """Whether `pretrain` or `init` has made a file below a directory: lists of words,
    logs, copies of the text, the dev parts of treebanks.
    """
    folders = [base / folder for folder in file.relative_to(base).parents]
    return (
        any(map(_is_cache, folders))
        or any(map(_is_project, folders[:-1]))
        or (any(map(file.match, RUN_FILES)) and _is_run(file.parent))
    )


def _is_cache(folder: Path) -> bool:
    return folder.suffix == ".making" or (folder / "tokens.bin").is_file()


def _is_run(folder: Path) -> bool:
    return (folder / "options.json").is_file() or _is_cache(folder / "corpus" / "train")


def _is_project(folder: Path) -> bool:
    """Whether `init` has written a directory."""
    return (folder / PROJECT).is_file() and (folder / CORPUS / TEXT).is_file()


def _is_there(file: Path) -> bool:
    """Whether a path is a file.

    RAISES (CorpusError): If it is a link to one that is not there.
    """
    if file.is_symlink() and not file.exists():
        raise unusable(file, f"is a link to nothing ({os.readlink(file)})")
    return file.is_file()


def _is_folder(path: Union[str, Path]) -> bool:
    return bool(path) and Path(path).is_dir()  # "" is no folder


def _why_none(path: Union[str, Path]) -> str:
    """Why `find_texts` finds nothing."""
    if _is_folder(path):
        return f"the directory has no {KNOWN}"
    if "://" in str(path):
        return "URLs are not read. Download it first"
    if path and Path(path).exists():
        return "it is a pipe or a device. Write its text to a file first"
    return "there is no such file or directory"


def _require_text(file: Path) -> None:
    """RAISES (CorpusError): If a file has neither a known suffix nor plain text."""
    if _kind(file):
        return
    with file.open("rb") as opened:
        binary = b"\x00" in opened.read(4096)
    if binary or file.suffix[1:].isalpha():
        is_treebank = suffix_of(file) in ANNOTATED
        hint = ". 'spacy elmo init' takes it as --treebank" if is_treebank else ""
        raise unusable(file, f"is not a {KNOWN}{hint}")


def read_documents(
    path: Path,
    *,
    strict: bool = False,
    keep_empty: bool = False,
    tokenized: bool = False,
    lang: str = "",
) -> Iterator[Union[List[Any], Doc]]:
    """The documents of a file. A .txt is paragraphs, one per line, with an empty line
    after each document: a list of paragraphs each. A .jsonl is spaCy's raw text
    format: one object per line, with "text" or "tokens". A .spacy DocBin gives Docs.

    strict (bool): Whether any byte that is not UTF-8 is an error. Otherwise it is read
        as U+FFFD, and a warning counts the lines: a few of the millions that a language
        model is trained on may be broken. Many are still an error.
    keep_empty (bool): Each line of a .txt is a document, empty lines too; and an empty
        "text" is a paragraph.
    tokenized (bool): Of a "text" and its "tokens", the tokens are read.
    lang (str): The language of the Docs.
    YIELDS (List[str] or List[List[str]] or Doc): Paragraphs of text, or of words.
    RAISES (CorpusError): If the file is damaged.
    """
    kind = _kind(path) or ".txt"
    try:
        with open_text(path) as file:
            if kind == ".spacy":
                vocab = Vocab({**LEX_ATTRS, LANG: lambda _: lang})
                yield from DocBin().from_bytes(file.read()).get_docs(vocab)
                return
            lines = read_lines(path, file, strict=strict)
            if kind == ".jsonl":
                yield from _read_jsonl(path, lines, keep_empty, tokenized)
            elif keep_empty:
                yield from ([line] for line in lines)
            else:
                yield from _read_txt(lines)
    except CorpusError:
        raise
    except Exception as e:  # each library has its own for a damaged file
        raise unusable(path, f"is not readable as {kind} ({e})") from None


def read_texts(
    path: Path, *, tokenized: bool = False, keep_empty: bool = False, lang: str = ""
) -> Iterator[Text]:
    """The texts of a file: each line of a .txt, each paragraph or list of tokens of a
    .jsonl, each Doc of a .spacy.

    tokenized (bool): Words stand between spaces: lines are split there.
    keep_empty (bool): With the empty lines of a .txt and the empty texts of a .jsonl.
    lang (str): The language of the Docs.
    RAISES (CorpusError): If the file is damaged or is not UTF-8.
    """
    documents = read_documents(
        path, strict=True, keep_empty=keep_empty, tokenized=tokenized, lang=lang
    )
    for document in documents:
        for text in document if isinstance(document, list) else [document]:
            yield text.split() if tokenized and isinstance(text, str) else text


def read_all(path: Union[str, Path], **how: Any) -> Iterator[Text]:
    """The texts of all files that `find_texts` finds, with options of `read_texts`.

    RAISES (CorpusError): If there are none.
    """
    text = None
    for file in find_texts(path):
        for text in read_texts(file, **how):
            yield text
    if text is None:
        raise CorpusError(Errors.E050.format(path=path, problem="it is empty"))


def make_doc(nlp: Language, text: Text) -> Doc:
    """A Doc of a text that `read_texts` gives. A list of words is one sentence.

    RAISES (CorpusError): If the tokenizer takes no such text.
    """
    if isinstance(text, Doc):
        return text
    if isinstance(text, str):
        try:
            return nlp.make_doc(text)
        except Exception as e:  # whatever a tokenizer raises
            reason = f"{type(e).__name__}: {' '.join(str(e).split())}"
            problem = f"its tokenizer fails at the text {text[:40]!r} ({reason})"
            raise unusable("[nlp]", problem) from None
    return Doc(nlp.vocab, words=text, sent_starts=[i == 0 for i in range(len(text))])


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


def _read_txt(lines: Iterator[str]) -> Iterator[List[str]]:
    paragraphs: List[str] = []
    for line in lines:
        if line:
            paragraphs.append(line)
        if paragraphs and (not line or len(paragraphs) == MAX_DOCUMENT_LINES):
            yield paragraphs
            paragraphs = []
    if paragraphs:
        yield paragraphs


def _read_jsonl(
    path: Path, lines: Iterator[str], keep_empty: bool, tokenized: bool
) -> Iterator[List[Any]]:
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = srsly.json_loads(line)
        except ValueError as e:
            raise unusable(path, f"line {number} is not JSON ({e})") from None
        if tokenized and isinstance(record, dict) and record.get("tokens") is not None:
            record.pop("text", None)
        if isinstance(record, dict) and isinstance(record.get("text"), str):
            text = _without_surrogates(record["text"])
            paragraphs = [p for p in text.splitlines() if p.strip()]
            yield paragraphs or [""] * keep_empty
        elif isinstance(record, dict) and isinstance(record.get("tokens"), list):
            words = record["tokens"]
            for bad in (w for w in words if not isinstance(w, (str, int, float))):
                problem = f'line {number}: one of the "tokens" is {bad!r}, no word'
                raise unusable(path, problem)
            yield [[_without_surrogates(str(w)) or "\ufffd" for w in words]]
        else:
            raise unusable(path, f'line {number} has neither "text" nor "tokens"')


def _without_surrogates(text: str) -> str:
    # JSON can escape half a character, which neither UTF-8 nor spaCy can hold.
    return text.encode("utf8", "ignore").decode("utf8")


def _kind(path: Path) -> str:
    """The suffix that tells the format, or "" for a file that is no text."""
    suffix = suffix_of(path)
    return suffix if suffix in SUFFIXES else ""


def suffix_of(path: Path) -> str:
    """The last suffix that is not a compression, in lower case, or ""."""
    suffixes = [s for s in map(str.lower, path.suffixes) if s not in COMPRESSED]
    return suffixes[-1] if suffixes else ""


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
