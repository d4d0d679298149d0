"""Where the options and the weights of a model are: a directory, a .zip, a file."""

import io
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Callable, List, NamedTuple, Union

from ..errors import Errors, MissingWeights, WeightsError, looked_for

PathLike = Union[str, Path]

FOREIGN_FILES = ("encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic")
MAX_OPTIONS_BYTES = 1 << 20
# Trained weights hardly shrink in an archive; small files may hold little else than
# their structure.
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


def find_files(path: PathLike) -> ModelFiles:
    """Find the options and the weights of a model, without opening the weights.

    RAISES (WeightsError): If there is not exactly one of each.
    """
    path = Path(path)
    if path.is_dir():
        names = [p.name for p in path.iterdir() if p.is_file()]
        _refuse_foreign(path, names)
        options = path / _only(path, names, _is_options, "options files")
        weights = path / _only(path, names, _is_weights, "*.hdf5 files")
    elif path.is_file() and path.suffix.lower() == ".zip":
        return _find_in_zip(path)
    elif path.is_file():
        weights = path
        options = _options_beside(path)
    else:
        raise _missing(path)
    return ModelFiles(str(options), options.read_bytes(), str(weights), weights)


def _find_in_zip(path: Path) -> ModelFiles:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {i.filename: i for i in archive.infolist() if not i.is_dir()}
            names = [n for n in infos if not n.startswith("__MACOSX/")]
            _refuse_hostile(path, list(infos))
            _refuse_foreign(path, names)
            options = _only(path, names, _is_options, "options files")
            weights = _only(path, names, _is_weights, "*.hdf5 files")
            _check_sizes(path, infos[options], infos[weights])
            return ModelFiles(
                f"{path}:{options}",
                _read(archive, infos[options]),
                f"{path}:{weights}",
                io.BytesIO(_read(archive, infos[weights])),
            )
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as e:
        raise WeightsError(Errors.E005.format(path=path, reason=e)) from None
    except (RuntimeError, zlib.error, UnicodeError) as e:  # encrypted; damaged
        raise WeightsError(Errors.E005.format(path=path, reason=e)) from None


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    # As many bytes as were checked: the content may be more than the archive says.
    with archive.open(info) as file:
        return file.read(info.file_size)


def _refuse_hostile(path: Path, names: List[str]) -> None:
    # Nothing is ever unpacked to a disk; but who makes such names means harm.
    for name in names:
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0]:
            problem = f"{name!r} would be outside of it"
            raise WeightsError(Errors.E012.format(path=path, problem=problem))


def _check_sizes(
    path: Path, options: zipfile.ZipInfo, weights: zipfile.ZipInfo
) -> None:
    problem = ""
    if options.file_size > MAX_OPTIONS_BYTES:
        problem = f"{options.filename} would be {options.file_size:,} bytes"
    elif weights.file_size > max(SMALL_BYTES, MAX_ZIP_RATIO * weights.compress_size):
        problem = (
            f"{weights.filename} would grow from {weights.compress_size:,} to "
            f"{weights.file_size:,} bytes"
        )
    if problem:
        raise WeightsError(Errors.E012.format(path=path, problem=problem))


def _options_beside(weights: Path) -> Path:
    if weights.name.endswith("_weights.hdf5"):
        named = weights.with_name(weights.name[: -len("weights.hdf5")] + "options.json")
        if named.is_file():
            return named
    if (weights.parent / "options.json").is_file():
        return weights.parent / "options.json"
    names = [p.name for p in weights.parent.iterdir() if p.is_file()]
    found = _only(weights, names, _is_options, "options files beside it")
    return weights.parent / found


def _only(
    path: Path, names: List[str], accept: Callable[[str], bool], what: str
) -> str:
    found = sorted(n for n in names if accept(n))
    if len(found) != 1:
        raise WeightsError(Errors.E002.format(path=path, n=len(found), what=what))
    return found[0]


def _is_options(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return base == "options.json" or base.endswith("_options.json")


def _is_weights(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return base.endswith(".hdf5") and not base.startswith(".")


def _missing(path: Path) -> Exception:
    return MissingWeights(
        Errors.E001.format(
            path=looked_for(path),
            names="such as en_elmo_sm",
            published="such as allennlp/original; names are for configs, commands and "
            "spacy_elmo.weights.resolve",
        )
    )


def _refuse_foreign(path: Path, names: List[str]) -> None:
    base = {n.rsplit("/", 1)[-1] for n in names}
    found = [n for n in FOREIGN_FILES if n in base]
    if found:
        raise WeightsError(Errors.E003.format(path=path, found=", ".join(found)))
