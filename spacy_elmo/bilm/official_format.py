"""The official HDF5 layout (bilm-tf's `dump_weights`) <-> BiLM."""

import json
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

from ..errors import Errors, WeightsError
from ..storage import replacing
from .files import ModelFiles, PathLike, find_files
from .hdf5 import create_hdf5, open_hdf5, read_dataset, write_dataset
from .model import BiLM
from .options import Options

Floats = npt.NDArray[Any]

# Groups that describe the biLM: a name in them that the options do not ask for is an
# error. Others (our softmax, for instance) are left alone.
KNOWN_GROUPS = ("char_embed", "CNN", "CNN_", "RNN_")


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
            layer.kernel.detach().zero_()  # its padding is in no file
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

    file = create_hdf5(target) if isinstance(target, Path) else h5py.File(target, "w")
    with file as h5:
        for entry in layout(bilm):
            array = entry.write(entry.param.detach().float().cpu().numpy())
            if entry.name.endswith("/B"):
                # AllenNLP adds 1 to the forget bias in the file's own precision.
                array = array.astype(dtype)
                write_dataset(h5, entry.name, array, "float32")
            else:
                write_dataset(h5, entry.name, array, dtype)
        for name, array in extra.items():
            write_dataset(
                h5, name, array, array.dtype.name, compression="gzip", shuffle=True
            )


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
