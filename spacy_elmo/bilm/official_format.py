"""The official HDF5 layout, that of bilm-tf's `dump_weights`."""

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..errors import Errors, WeightsError, require
from ..storage import create_hdf5, replacing
from .encoder import CharacterEncoder
from .files import ModelFiles
from .lstm import LSTMLayer
from .options import Options

Floats = npt.NDArray[Any]

# Groups that describe the biLM: a name in them that the options do not ask for is an
# error. Others (our softmax, for instance) are left alone.
KNOWN_GROUPS = ("char_embed", "CNN", "CNN_", "RNN_")
MAX_RATIO = 1000  # of a dataset's size in memory to that in the file


class Entry(NamedTuple):
    """A dataset of the official layout, the parameter that it holds, and what makes
    the one of the other: another order of the axes or of the gates.
    """

    name: str
    param: Tensor
    read: Callable[[Tensor], Tensor]
    write: Callable[[Tensor], Tensor]


def layout(
    encoder: CharacterEncoder, directions: Sequence[Sequence[LSTMLayer]]
) -> Iterator[Entry]:
    """Every dataset of a biLM."""
    yield _plain("char_embed", encoder.char_embed)
    for i, (weight, bias) in enumerate(zip(encoder.conv_weight, encoder.conv_bias)):
        yield Entry(f"CNN/W_cnn_{i}", weight, _read_filter, _write_filter)
        yield _plain(f"CNN/b_cnn_{i}", bias)
    for i, highway in enumerate(encoder.highways):
        for part in ("carry", "transform"):
            yield from _linear(f"CNN_high_{i}/{{}}_{part}", getattr(highway, part))
    if encoder.projection is not None:
        yield from _linear("CNN_proj/{}_proj", encoder.projection)
    for d, layers in enumerate(directions):
        for i, layer in enumerate(layers):
            cell = f"RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            yield Entry(f"{cell}/W_0", layer.weight, _read_gates, _write_gates)
            yield Entry(f"{cell}/B", layer.bias, _read_gates, _write_gates)
            if layer.projection is not None:
                yield _plain(f"{cell}/W_P_0", layer.projection)


def _plain(name: str, param: Tensor) -> Entry:
    return Entry(name, param, torch.detach, torch.detach)


def _linear(template: str, linear: nn.Linear) -> Iterator[Entry]:
    # Stored (in, out); nn.Linear holds (out, in).
    yield Entry(template.format("W"), linear.weight, torch.t, torch.t)
    yield _plain(template.format("b"), linear.bias)


def _read_filter(stored: Tensor) -> Tensor:
    # (1, width, d, n) -> (n, d, width)
    return stored[0].permute(2, 1, 0)


def _write_filter(weight: Tensor) -> Tensor:
    return weight.permute(2, 1, 0)[None]


def _read_gates(stored: Tensor) -> Tensor:
    # TensorFlow's gate order i, j, f, o -> i, f, o, j.
    i, j, f, o = stored.chunk(4, -1)
    return torch.cat([i, f, o, j], -1)


def _write_gates(weight: Tensor) -> Tensor:
    if weight.is_meta:
        # Asked for its shape alone, and torch.cat would import torch's compiler.
        return weight
    i, f, o, j = weight.chunk(4, -1)
    return torch.cat([i, j, f, o], -1)


@contextmanager
def open_hdf5(files: ModelFiles) -> Iterator[Any]:
    """Open the weights for reading; what h5py cannot read is a WeightsError."""
    import h5py

    try:
        h5 = h5py.File(files.weights, "r")
    except (OSError, ValueError, RuntimeError) as e:
        error = Errors.E004.format(path=files.weights_name, reason=e)
        raise WeightsError(error) from None
    with h5:
        yield h5


def read_weights(
    files: ModelFiles, bilm: nn.Module, entries: Callable[[], Iterator[Entry]]
) -> None:
    """Read the weights of a biLM that has no memory yet: it gets some once the names
    and shapes are known to be all that the options ask for, and nothing beside it.
    """
    import h5py

    shapes: Dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            shapes[name] = item.shape

    with open_hdf5(files) as h5, torch.no_grad():
        try:
            h5.visititems(visit)
        except Exception as e:  # h5py raises nearly anything on damaged files
            error = Errors.E004.format(path=files.weights_name, reason=e)
            raise WeightsError(error) from None
        wanted = {name: tuple(write(x).shape) for name, x, _, write in entries()}
        for name in [*wanted, *(n for n in shapes if n.startswith(KNOWN_GROUPS))]:
            if shapes.get(name) != wanted.get(name):
                raise mismatch(name, shapes.get(name), wanted.get(name), files)
        # Zeros: the padding of kernels is in no file. `to_empty` would import sympy.
        for module in bilm.modules():
            for name, empty in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.zeros(empty.shape)))
        for name, param, read, _ in entries():
            param.copy_(read(torch.from_numpy(read_dataset(h5, name, files))))


def mismatch(name: str, found: Any, wanted: Any, files: ModelFiles) -> WeightsError:
    """The error of a dataset whose shape is not that of the options, or None."""
    shapes = {
        key: "missing" if shape is None else f"of shape {shape}"
        for key, shape in (("found", found), ("wanted", wanted))
    }
    return WeightsError(
        Errors.E008.format(
            path=files.weights_name, options=files.options_name, name=name, **shapes
        )
    )


def read_dataset(h5: Any, name: str, files: ModelFiles) -> npt.NDArray[np.float32]:
    """Read a dataset as float32, and check its numbers."""
    try:
        dataset = h5[name]
        n_stored = dataset.id.get_storage_size()
        if dataset.dtype.kind != "f":
            problem = f"{dataset.dtype} instead of floating-point numbers"
        elif dataset.external or dataset.is_virtual:
            problem = "no numbers but a reference to another file"
        elif dataset.nbytes > MAX_RATIO * max(n_stored, 1 << 10):
            problem = f"{dataset.nbytes:,} bytes in {n_stored:,}"
        else:
            with np.errstate(over="ignore"):
                array = np.asarray(dataset[()], dtype=np.float32)
            if np.isfinite(array).all():
                return array
            problem = "NaN or infinite numbers"
    except Exception as e:  # h5py raises nearly anything on damaged files
        problem = f"what cannot be read: the file is damaged ({e})"
    path = files.weights_name
    raise WeightsError(Errors.E011.format(path=path, name=name, problem=problem))


def write_files(
    directory: Path,
    options: Options,
    entries: Iterator[Entry],
    dtype: str,
    extra: Mapping[str, Floats],
) -> None:
    """Write options.json and weights.hdf5, each beside its place and then renamed. See
    BiLM.save.
    """
    known = dtype in ("float32", "float16")
    require(known, "dtype", "'float32' or 'float16'", dtype)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "weights.hdf5"
    # In this version of the format, all of the structure has checksums.
    with replacing(path) as temporary, create_hdf5(temporary, libver="v110") as h5:
        for name, param, _, write in entries:
            array = write(param.detach().float().cpu()).numpy()
            _write_dataset(h5, name, array, dtype)
        for name, array in extra.items():
            _write_dataset(h5, name, array, dtype, compression="gzip", shuffle=True)
    with replacing(directory / "options.json") as temporary:
        temporary.write_text(options.to_json(), encoding="utf8")


def _write_dataset(
    h5: Any, name: str, array: Floats, dtype: str, **options: Any
) -> None:
    with np.errstate(over="ignore"):
        rounded = array.astype(dtype)
    if not np.isfinite(rounded).all():
        value = np.abs(array).max()
        raise ValueError(Errors.E042.format(name=name, value=value, dtype=dtype))
    # AllenNLP adds 1 to the forget bias in the file's own precision.
    stored = "float32" if name.endswith("/B") else dtype
    # One chunk: a checksum needs chunks, and an index of several would have none.
    h5.create_dataset(
        name, data=rounded, dtype=stored, chunks=array.shape, fletcher32=True, **options
    )
