"""What a path of a model names: the options and the weights in a directory, a .zip or
beside one another. official_format.py reads and writes them.
"""

import io
import os
import zipfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO, List, NamedTuple, Tuple, Union

from ..errors import Errors, MissingWeights, WeightsError, looked_for

OPTIONS_FILE, WEIGHTS_FILE = "options.json", "weights.hdf5"  # as we write them
# Patterns of names, and what errors call them. macOS leaves a "._" file beside each.
OPTIONS_NAMES = (OPTIONS_FILE, "[!.]*_options.json"), "options files"
WEIGHTS_NAMES = ("[!.]*.hdf5",), "*.hdf5 files"
CHECKPOINT = "checkpoint.pt"  # of pretraining
FOREIGN_FILES = {"encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"}
# Trained weights hardly shrink in an archive; small files are mostly structure.
MAX_ZIP_RATIO = 10
SMALL_BYTES = 1 << 26


class ModelFiles(NamedTuple):
    """An options file and a weights file: what errors call them, and the contents
    (`weights` is a path or an open binary file, as h5py takes both).
    """

    options_name: str
    options: bytes
    weights_name: str
    weights: Union[Path, BinaryIO]


def find_files(path: Union[str, Path]) -> ModelFiles:
    """Find the options and the weights of a model, without opening the weights: those
    of a .zip are in memory then.

    RAISES (WeightsError): If there is not exactly one of each.
    """
    path = Path(path)
    if path.is_file() and path.suffix.lower() == ".zip":
        return _find_in_zip(path)
    if path.is_dir():
        names = _files_in(path)
        weights = path / _only(path, names, *WEIGHTS_NAMES)
        options = path / _only(path, names, *OPTIONS_NAMES)
    elif path.suffix == ".json" and path.is_file():
        raise WeightsError(Errors.E010.format(path=path))
    elif path.is_file():
        weights, options = path, _options_beside(path)
    else:
        raise MissingWeights(Errors.E009.format(path=looked_for(path)))
    return ModelFiles(str(options), options.read_bytes(), str(weights), weights)


def _find_in_zip(path: Path) -> ModelFiles:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [i.filename for i in archive.infolist() if not i.is_dir()]
            weights = _only(path, names, *WEIGHTS_NAMES)
            options = _only(path, names, *OPTIONS_NAMES)
            return ModelFiles(
                f"{path}:{options}",
                _read_member(path, archive, options),
                f"{path}:{weights}",
                io.BytesIO(_read_member(path, archive, weights)),
            )
    except WeightsError:
        raise
    except Exception as e:  # zipfile and zlib raise nearly anything on damaged files
        error = Errors.E004.format(path=path, kind="zip archive", reason=e)
        raise WeightsError(error) from None


def _read_member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile inflates whole chunks of the others, whatever their size.
        raise NotImplementedError(f"{name} is neither stored nor deflated")
    compressed = min(info.compress_size, path.stat().st_size)  # as it says, at most
    if info.file_size > max(SMALL_BYTES, MAX_ZIP_RATIO * compressed):
        sizes = f"{compressed:,} to {info.file_size:,} bytes"
        problem = f"{name} would grow from {sizes}"
        raise WeightsError(Errors.E012.format(path=path, problem=problem))
    with archive.open(info) as file:
        # No more than was checked: the archive may hold more than it says.
        return file.read(info.file_size)


def _options_beside(weights: Path) -> Path:
    own = weights.name.removesuffix(WEIGHTS_FILE) + OPTIONS_FILE
    for name in (own, OPTIONS_FILE):
        if weights.with_name(name).is_file():
            return weights.with_name(name)
    names = _files_in(weights.parent)
    return weights.with_name(_only(weights, names, *OPTIONS_NAMES))


def _files_in(folder: Path) -> List[str]:
    return [path.name for path in folder.iterdir() if path.is_file()]


def _only(path: Path, names: List[str], patterns: Tuple[str, ...], what: str) -> str:
    files = [PurePosixPath(name) for name in names]
    foreign = FOREIGN_FILES.intersection(file.name for file in files)
    if foreign:
        known = ", ".join(sorted(foreign))
        raise WeightsError(Errors.E003.format(path=path, found=known))
    both = zip(names, files)
    found = [name for name, file in both if any(map(file.match, patterns))]
    if len(found) != 1:
        inside = [str(options.parent) for options in path.glob("*/options.json")]
        # What 'spacy train' writes
        inside = inside or list(map(str, path.glob("model-best")))
        hint = f" Did you mean {' or '.join(inside[:2])}?" if inside else ""
        if links := [p for p in path.glob("*") if p.is_symlink() and not p.exists()]:
            hint = f" {links[0].name} is a link to nothing ({os.readlink(links[0])})."
        if CHECKPOINT in names and not found:
            hint = " Its pretraining has not ended: give that command again."
        elif (path / "vocab").is_dir() and not found and not inside:
            hint = (
                " This pipeline has no elmo component; a biLM inside another "
                "component (spacy_elmo.ELMo.v1) has no files of its own."
            )
        count = {"n": len(found), "what": what}
        raise WeightsError(Errors.E002.format(path=path, hint=hint, **count))
    return found[0]
