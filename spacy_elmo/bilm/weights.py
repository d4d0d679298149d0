"""The official HDF5 layout (bilm-tf's `dump_weights`) <-> BiLM."""

import io
import json
import os
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import (
    Any,
    BinaryIO,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Tuple,
    Union,
)

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import Errors, MissingWeights, WeightsError
from .model import BiLM
from .options import Options

Floats = npt.NDArray[Any]
PathLike = Union[str, Path]

# Groups that describe the biLM: a name in them that the options do not ask for is an
# error. Others (our softmax, for instance) are left alone.
KNOWN_GROUPS = ("char_embed", "CNN", "CNN_", "RNN_")
FOREIGN_FILES = ("encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic")
MAX_OPTIONS_BYTES = 1 << 20
MAX_ZIP_RATIO = 1000


class ModelFiles(NamedTuple):
    """An options file and a weights file: what errors call them, and the contents
    (`weights` is a path or an open binary file, as h5py takes both).
    """

    options_name: str
    options: bytes
    weights_name: str
    weights: Union[Path, BinaryIO]


class Entry(NamedTuple):
    """A dataset of the official layout and the parameter that it fills."""

    name: str
    shape: Tuple[int, ...]
    param: Tensor
    read: Callable[[Floats], Floats]
    write: Callable[[Floats], Floats]


def read_bilm(path: PathLike) -> BiLM:
    """Load a BiLM from a directory, .zip or .hdf5 file. See BiLM.from_path."""
    return read_files(find_files(path))


def read_files(files: ModelFiles) -> BiLM:
    """Load a BiLM from an options file and a weights file."""
    options = Options.from_json(files.options, files.options_name)
    # Without memory until the file is known to fit: options can ask for terabytes.
    with torch.device("meta"):
        bilm = BiLM(options)
    with open_hdf5(files.weights, files.weights_name) as h5:
        _check_datasets(h5, bilm, files)
        bilm.to_empty(device="cpu")
        for layer in (*bilm.layers_of(0), *bilm.layers_of(1)):
            layer.pad_rows()
        for entry in layout(bilm):
            array = read_dataset(h5, entry.name, files.weights_name)
            with torch.no_grad():
                entry.param.copy_(torch.from_numpy(entry.read(array)))
    return bilm.eval().requires_grad_(False)


def write_bilm(
    bilm: BiLM,
    directory: PathLike,
    *,
    dtype: str = "float32",
    extra: Mapping[str, Floats] = {},
) -> None:
    """Write options.json and weights.hdf5, each beside its place and then renamed.

    bilm (BiLM): The model.
    directory (str or Path): Made if need be.
    dtype (str): "float32" or "float16".
    extra (Mapping[str, ndarray]): More datasets by name, such as the softmax.
    """
    if dtype not in ("float32", "float16"):
        wanted = "'float32' or 'float16'"
        raise ValueError(Errors.E038.format(name="dtype", wanted=wanted, found=dtype))
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with replacing(directory / "weights.hdf5") as temporary:
        write_hdf5(bilm, temporary, dtype=dtype, extra=extra)
    with replacing(directory / "options.json") as temporary:
        text = json.dumps(bilm.options.to_dict(), indent=2)
        temporary.write_text(text + "\n", encoding="utf8")


def write_hdf5(
    bilm: BiLM,
    target: Union[Path, BinaryIO],
    *,
    dtype: str = "float32",
    extra: Mapping[str, Floats] = {},
) -> None:
    """Write the weights in the official layout to a path or a binary file."""
    import h5py

    with h5py.File(target, "w") as h5:
        for entry in layout(bilm):
            array = entry.write(entry.param.detach().float().cpu().numpy())
            h5.create_dataset(entry.name, data=array.astype(dtype))
        for name, array in extra.items():
            h5.create_dataset(name, data=array, compression="gzip", shuffle=True)


def layout(bilm: BiLM) -> Iterator[Entry]:
    """Every dataset of the official layout that the options ask for."""
    char_cnn, lstm = bilm.options.char_cnn, bilm.options.lstm
    encoder, P, H = bilm.encoder, lstm.projection_dim, lstm.dim
    yield _plain("char_embed", encoder.char_embed)
    for i, (w, n) in enumerate(char_cnn.filters):
        shape = (1, w, char_cnn.embedding_dim, n)
        weight = encoder.conv_weight[i]
        yield Entry(f"CNN/W_cnn_{i}", shape, weight, _read_filter, _write_filter)
        yield _plain(f"CNN/b_cnn_{i}", encoder.conv_bias[i])
    for i, highway in enumerate(encoder.highways):
        for part in ("carry", "transform"):
            yield from _linear(f"CNN_high_{i}/{{}}_{part}", getattr(highway, part))
    if encoder.projection is not None:
        yield from _linear("CNN_proj/{}_proj", encoder.projection)
    for d in range(2):
        for i, layer in enumerate(bilm.layers_of(d)):
            cell = f"RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            yield Entry(
                f"{cell}/W_0", (2 * P, 4 * H), layer.weight, _read_gates, _write_gates
            )
            yield Entry(f"{cell}/B", (4 * H,), layer.bias, _read_gates, _write_gates)
            if layer.projection is not None:
                yield _plain(f"{cell}/W_P_0", layer.projection)


def find_files(path: PathLike) -> ModelFiles:
    """Find the options and the weights of a model, without opening the weights.

    RAISES (WeightsError): If there is not exactly one of each.
    """
    path = Path(path)
    if path.is_dir():
        names = [p.name for p in path.iterdir()]
        _refuse_foreign(path, names)
        options = path / _only(path, names, _is_options, "options files")
        weights = path / _only(path, names, _is_weights, "*.hdf5 files")
    elif path.is_file() and path.suffix == ".zip":
        return _find_in_zip(path)
    elif path.is_file():
        weights = path
        options = _options_beside(path)
    else:
        raise _missing(path)
    return ModelFiles(str(options), options.read_bytes(), str(weights), weights)


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


def read_dataset(h5: Any, name: str, path: str) -> npt.NDArray[np.float32]:
    """Read a dataset as float32, and check its numbers. `path` is named in errors."""
    dataset = h5[name]
    if dataset.dtype.kind != "f":
        problem = f"{dataset.dtype} instead of floating-point numbers"
        raise WeightsError(Errors.E011.format(path=path, name=name, problem=problem))
    try:
        array: npt.NDArray[np.float32] = dataset[()].astype(np.float32)
    except Exception as e:  # h5py raises nearly anything on damaged files
        raise WeightsError(Errors.E004.format(path=path, reason=e)) from None
    if not np.isfinite(array).all():
        problem = "NaN or infinite numbers"
        raise WeightsError(Errors.E011.format(path=path, name=name, problem=problem))
    return array


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well:
    a reader sees the old file or the new one, never a part.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; give it the rights that open() would.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _find_in_zip(path: Path) -> ModelFiles:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {i.filename: i for i in archive.infolist() if not i.is_dir()}
            names = [n for n in infos if not n.startswith("__MACOSX/")]
            _refuse_foreign(path, names)
            options = _only(path, names, _is_options, "options files")
            weights = _only(path, names, _is_weights, "*.hdf5 files")
            _check_sizes(path, infos[options], infos[weights])
            return ModelFiles(
                f"{path}:{options}",
                archive.read(options),
                f"{path}:{weights}",
                io.BytesIO(archive.read(weights)),
            )
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as e:
        raise WeightsError(Errors.E005.format(path=path, reason=e)) from None
    except (RuntimeError, zlib.error) as e:  # encrypted; damaged
        raise WeightsError(Errors.E005.format(path=path, reason=e)) from None


def _check_sizes(
    path: Path, options: zipfile.ZipInfo, weights: zipfile.ZipInfo
) -> None:
    problem = ""
    if options.file_size > MAX_OPTIONS_BYTES:
        problem = f"{options.filename} would be {options.file_size:,} bytes"
    elif weights.file_size > MAX_ZIP_RATIO * max(weights.compress_size, 1):
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
    names = [p.name for p in weights.parent.iterdir()]
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
            path=path, names="such as en_elmo_sm", published="such as allennlp/original"
        )
    )


def _refuse_foreign(path: Path, names: List[str]) -> None:
    base = {n.rsplit("/", 1)[-1] for n in names}
    found = [n for n in FOREIGN_FILES if n in base]
    if found:
        raise WeightsError(Errors.E003.format(path=path, found=", ".join(found)))


def _check_datasets(h5: Any, bilm: BiLM, files: ModelFiles) -> None:
    """Names and shapes: all that the options ask for, and nothing beside it."""
    import h5py

    path, options = files.weights_name, files.options_name
    found: Dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item.shape

    try:
        h5.visititems(visit)
    except Exception as e:  # h5py raises nearly anything on damaged files
        raise WeightsError(Errors.E004.format(path=path, reason=e)) from None
    wanted = {entry.name: entry.shape for entry in layout(bilm)}
    for name, shape in wanted.items():
        if name not in found:
            error = Errors.E008.format(
                path=path, name=name, wanted=shape, options=options
            )
            raise WeightsError(error)
        if found[name] != shape:
            error = Errors.E009.format(
                path=path, name=name, found=found[name], wanted=shape, options=options
            )
            raise WeightsError(error)
    for name in found:
        if name.startswith(KNOWN_GROUPS) and name not in wanted:
            error = Errors.E010.format(path=path, name=name, options=options)
            raise WeightsError(error)


def _same(array: Floats) -> Floats:
    return array


def _plain(name: str, param: Tensor) -> Entry:
    return Entry(name, tuple(param.shape), param, _same, _same)


def _linear(template: str, linear: Any) -> Iterator[Entry]:
    # Stored (in, out); nn.Linear holds (out, in).
    shape = (linear.in_features, linear.out_features)
    yield Entry(template.format("W"), shape, linear.weight, np.transpose, np.transpose)
    yield _plain(template.format("b"), linear.bias)


def _read_filter(array: Floats) -> Floats:
    # (1, width, d, n) -> (n, d, width)
    filters: Floats = array[0].transpose(2, 1, 0).copy()
    return filters


def _write_filter(array: Floats) -> Floats:
    return array.transpose(2, 1, 0)[None]


def _read_gates(array: Floats) -> Floats:
    # TensorFlow's gate order i, j, f, o -> i, f, o, j.
    return _reorder_gates(array, (0, 2, 3, 1))


def _write_gates(array: Floats) -> Floats:
    return _reorder_gates(array, (0, 3, 1, 2))


def _reorder_gates(array: Floats, order: Tuple[int, ...]) -> Floats:
    gates: List[Floats] = np.split(array, 4, axis=-1)
    reordered: Floats = np.concatenate([gates[g] for g in order], axis=-1)
    return reordered
