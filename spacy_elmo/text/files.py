"""Files of text: which there are below a path."""

import glob
import os
import re
from pathlib import Path
from typing import Dict, Iterator, List, NoReturn, Set, Union

from ..errors import CorpusError, Errors, looked_for, unusable

SUFFIXES = (".txt", ".jsonl", ".spacy")
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
KNOWN = ".txt, .jsonl or .spacy (or one of them in .gz, .xz, .bz2 or .zst)"
ANNOTATED = (".conllu", ".conll", ".iob")
# What `init` makes, and the text that `pretrain` leaves in its folder
PROJECT, CORPUS, TEXT = "project.yml", "corpus", "text.txt"
NO_TEXTS = ("vocab.txt", "log.jsonl", "batch-*.txt")
# What `split` and large corpora add to the name of a file
PART = re.compile(r"[.-]\d+(-of-\d+)?$")


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
        if kind_of(file) and _is_there(file) and not _is_made(file, Path(path)):
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
        or (any(map(file.match, NO_TEXTS)) and _is_run(file.parent))
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


def _is_folder(path: str) -> bool:
    return bool(path) and Path(path).is_dir()  # "" is no folder


def _why_none(path: str) -> str:
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
    if kind_of(file):
        return
    if (whole := PART.sub("", file.name)) != file.name:
        kind = suffix_of(Path(whole))
        if kind in (".jsonl", ".spacy", *ANNOTATED):
            raise unusable(
                file, f"seems to be a part of a {kind}: let it end in {kind}"
            )
    with file.open("rb") as opened:
        start = opened.read(4096)
    if start.lstrip().startswith(b'{"'):
        raise unusable(file, "seems to be JSON lines: let it end in .jsonl")
    if b"\x00" in start or file.suffix[1:].isalpha():
        is_treebank = suffix_of(file) in ANNOTATED
        hint = ". 'spacy elmo init' takes it as --treebank" if is_treebank else ""
        raise unusable(file, f"is not a {KNOWN}{hint}")


def kind_of(path: Path) -> str:
    """The suffix that tells the format, or "" for a file that is no text."""
    suffix = suffix_of(path)
    return suffix if suffix in SUFFIXES else ""


def suffix_of(path: Path) -> str:
    """The last suffix that is not a compression, in lower case, or ""."""
    suffixes = [s for s in map(str.lower, path.suffixes) if s not in COMPRESSED]
    return suffixes[-1] if suffixes else ""
