"""The official HDF5 layout, that of bilm-tf's `dump_weights`. The weights of pipelines
(layers/shim.py) and of pretraining (pretraining/language_model.py) are written here;
its checkpoints are files of torch's (pretraining/checkpoint.py).
"""

import hashlib
import json
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..errors import Errors, WeightsError, require
from ..storage import create_hdf5, replacing
from .encoder import CharacterEncoder
from .lstm import LSTMLayer
from .options import Options
from .paths import OPTIONS_FILE, WEIGHTS_FILE, ModelFiles

Floats = npt.NDArray[np.float32]

# Groups that describe the biLM: a dataset in them that the options do not ask for is an
# error. Others, such as our softmax, are ignored.
KNOWN_GROUPS = ("char_embed", "CNN", "RNN_")
MAX_RATIO = 1000  # of a dataset's size in memory to that in the file

# The datasets by name. Each is given as views of the parameter that holds it: side by
# side along the last axis, they are the dataset.
Layout = Dict[str, List[Tensor]]


def layout(encoder: CharacterEncoder, stacks: Sequence[Sequence[LSTMLayer]]) -> Layout:
    """Every dataset of a biLM."""
    found: Layout = {"char_embed": [encoder.char_embed]}
    for i, (weight, bias) in enumerate(zip(encoder.conv_weight, encoder.conv_bias)):
        # (n, d, width) -> (1, width, d, n)
        found[f"CNN/W_cnn_{i}"] = [weight.permute(2, 1, 0)[None]]
        found[f"CNN/b_cnn_{i}"] = [bias]
    linears = {
        f"CNN_high_{i}/{{}}_{part}": getattr(highway, part)
        for i, highway in enumerate(encoder.highways)
        for part in ("carry", "transform")
    }
    if encoder.projection is not None:
        linears["CNN_proj/{}_proj"] = encoder.projection
    for name, linear in linears.items():
        found[name.format("W")] = [linear.weight.t()]
        found[name.format("b")] = [linear.bias]
    for d, layers in enumerate(stacks):
        for i, layer in enumerate(layers):
            cell = f"RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            for name, gates in (("W_0", layer.weight), ("B", layer.bias)):
                in_gate, forget, out_gate, new = gates.chunk(4, -1)
                # In TensorFlow's order.
                found[f"{cell}/{name}"] = [in_gate, new, forget, out_gate]
            if layer.projection is not None:
                found[f"{cell}/W_P_0"] = [layer.projection]
    return found


def to_array(views: Sequence[Tensor]) -> Floats:
    """The dataset that these views of a parameter are."""
    return torch.cat([x.detach().float().cpu() for x in views], -1).numpy()


def digest(options: Options, datasets: Layout) -> str:
    """A name for a biLM's geometry and weights. It is made of the official layout, so
    that it stays the same in all releases.
    """
    geometry = json.dumps(options.to_dict(), sort_keys=True)
    found = hashlib.sha256(geometry.encode("utf8"))
    for name, views in sorted(datasets.items()):
        found.update(name.encode("utf8"))
        found.update(np.ascontiguousarray(to_array(views)).data)
    return found.hexdigest()[:16]


@contextmanager
def open_hdf5(files: ModelFiles) -> Iterator[Tuple[Any, Dict[str, Tuple[int, ...]]]]:
    """Open the weights for reading.

    YIELDS (Tuple[h5py.File, Dict[str, Tuple[int, ...]]]): The file, and the shape of
        each of its datasets.
    RAISES (WeightsError): If h5py cannot read them.
    """
    import h5py

    names: List[str] = []
    with ExitStack() as stack:
        try:
            h5 = stack.enter_context(h5py.File(files.weights, "r"))
            h5.visit(names.append)
            shapes = {n: h5[n].shape for n in names if isinstance(h5[n], h5py.Dataset)}
        except Exception as e:  # h5py raises nearly anything on damaged files
            what = {"path": files.weights_name, "kind": "HDF5 file"}
            raise WeightsError(Errors.E004.format(**what, reason=e)) from None
        yield h5, shapes


def read_weights(files: ModelFiles, bilm: Any) -> None:
    """Read the weights into a biLM on the device "meta". It gets memory only once the
    names and shapes in the file are those that the options ask for.
    """
    # Whatever mode and default dtype the caller has: the weights may be trained later.
    with open_hdf5(files) as (h5, found), torch.inference_mode(False), torch.no_grad():
        # Not by torch.cat, which would import torch's compiler for tensors on "meta".
        wanted = {
            name: (*views[0].shape[:-1], sum(x.shape[-1] for x in views))
            for name, views in bilm.layout().items()
        }
        for name in [*wanted, *(n for n in found if n.startswith(KNOWN_GROUPS))]:
            shapes = found.get(name, "nothing"), wanted.get(name, "nothing")
            check_shape(name, *shapes, files)
        # Zeros: the padding of kernels is in no file. `to_empty` would import sympy.
        for module in bilm.modules():
            for name, empty in module.named_parameters(recurse=False):
                zeros = torch.zeros(empty.shape, dtype=torch.float32)
                setattr(module, name, nn.Parameter(zeros))
        for name, views in bilm.layout().items():
            array = torch.from_numpy(read_dataset(h5, name, files))
            for view, part in zip(views, array.chunk(len(views), -1)):
                view.copy_(part)


def check_shape(name: str, found: object, wanted: object, files: ModelFiles) -> None:
    """RAISES (WeightsError): If the shape of a dataset is not the one wanted."""
    if found != wanted:
        files_named = {"path": files.weights_name, "options": files.options_name}
        shapes = {"found": found, "wanted": wanted}
        raise WeightsError(Errors.E008.format(name=name, **files_named, **shapes))


def read_dataset(h5: Any, name: str, files: ModelFiles) -> Floats:
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
        problem = f"unreadable numbers: the file is damaged ({e})"
    path = files.weights_name
    raise WeightsError(Errors.E011.format(path=path, name=name, problem=problem))


def write_files(
    directory: Path,
    options: Options,
    datasets: Layout,
    dtype: str,
    extra: Mapping[str, Floats],
) -> None:
    """Write both files beside their places, and rename them: see BiLM.save."""
    known = dtype in ("float32", "float16")
    require(known, "dtype", "'float32' or 'float16'", dtype)
    path = directory / WEIGHTS_FILE
    # In this version of the format, all of the structure has checksums.
    with replacing(path) as temporary, create_hdf5(temporary, libver="v110") as h5:
        for name, views in datasets.items():
            _write_dataset(h5, name, to_array(views), dtype)
        for name, array in extra.items():
            _write_dataset(h5, name, array, dtype, compression="gzip", shuffle=True)
    with replacing(directory / OPTIONS_FILE) as temporary:
        temporary.write_text(options.to_json(), encoding="utf8")


def round_to(dtype: str, array: Floats, name: str) -> Floats:
    """RAISES (ValueError): If a number is not finite, or too large for the type."""
    if not np.isfinite(array).all():
        raise ValueError(Errors.E044.format(name=name))
    with np.errstate(over="ignore"):
        rounded = array.astype(dtype, copy=False)
    if not np.isfinite(rounded).all():
        value = np.abs(array).max()
        raise ValueError(Errors.E042.format(name=name, value=value, dtype=dtype))
    return rounded


def _write_dataset(h5: Any, name: str, array: Floats, dtype: str, **how: Any) -> None:
    rounded = round_to(dtype, array, name)
    # AllenNLP adds 1 to the forget bias in the file's own precision.
    stored = "float32" if name.endswith("/B") else dtype
    # One chunk: a checksum needs chunks, and an index of several would have none.
    h5.create_dataset(
        name, data=rounded, dtype=stored, chunks=array.shape, fletcher32=True, **how
    )
