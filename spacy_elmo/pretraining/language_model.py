"""The files of a trained language model: the biLM in the official layout, and its
softmax in a group that readers of that layout ignore.
"""

from pathlib import Path
from typing import Any, Dict, List, Union

import numpy as np
import numpy.typing as npt
import torch

from ..bilm import BiLM
from ..bilm.files import ModelFiles, find_files
from ..bilm.hdf5 import open_hdf5, read_dataset
from ..bilm.official_format import write_bilm
from ..errors import Errors, WeightsError
from .adaptive import AdaptiveSoftmax
from .config import SoftmaxSettings
from .softmax import Softmax

Arrays = Dict[str, npt.NDArray[np.float32]]

WEIGHT = "softmax/W"
BIAS = "softmax/b"
# An adaptive softmax has its parameters here, by their names in torch.
ADAPTIVE = "softmax/adaptive"

AnySoftmax = Union[Softmax, AdaptiveSoftmax]
VOCABULARY = "vocab.txt"


def make_softmax(settings: SoftmaxSettings, vocab_size: int, width: int) -> AnySoftmax:
    """The softmax that [training.softmax] names, before it is initialized."""
    if settings.kind == "adaptive":
        return AdaptiveSoftmax(vocab_size, width, settings.cutoffs)
    return Softmax(vocab_size, width, settings.sparse)


def write_model(
    bilm: BiLM, softmax: AnySoftmax, output: Path, *, dtype: str = "float32"
) -> None:
    """Write options.json and weights.hdf5.

    bilm (BiLM): The biLM.
    softmax (Softmax or AdaptiveSoftmax): The softmax: the former is stored as
        `softmax/W` (vocabulary, projection) and `softmax/b` (vocabulary,).
    output (Path): Directory.
    dtype (str): "float32" or "float16".
    """
    if isinstance(softmax, AdaptiveSoftmax):
        state = {f"{ADAPTIVE}/{k}": v for k, v in softmax.state_dict().items()}
    else:
        state = {WEIGHT: softmax.weight, BIAS: softmax.bias}
    extra = {
        k: v.detach().float().cpu().numpy().astype(dtype) for k, v in state.items()
    }
    write_bilm(bilm, output, dtype=dtype, extra=extra)


def has_softmax(path: Union[str, Path]) -> bool:
    """Whether a model was written by `write_model`; the official ones were not."""
    files = find_files(path)
    with open_hdf5(files.weights, files.weights_name) as h5:
        return ADAPTIVE in h5 or (WEIGHT in h5 and BIAS in h5)


def read_softmax(path: Union[str, Path], width: int) -> AnySoftmax:
    """Read the softmax of a model that `write_model` wrote.

    path (str or Path): A directory, .zip or .hdf5 file.
    width (int): The projection of the biLM.
    RETURNS (Softmax or AdaptiveSoftmax): The softmax, without gradients.
    RAISES (WeightsError): If there is none, or if its shapes are wrong.
    """
    files = find_files(path)
    name = files.weights_name
    with open_hdf5(files.weights, name) as h5:
        if ADAPTIVE in h5:
            names = [f"{ADAPTIVE}/{k}" for k in _names_below(h5[ADAPTIVE])]
        elif WEIGHT in h5 and BIAS in h5:
            names = [WEIGHT, BIAS]
        else:
            raise WeightsError(Errors.E054.format(path=name))
        arrays = {n: read_dataset(h5, n, name) for n in names}
    found: AnySoftmax
    if WEIGHT in arrays:
        found = _plain_softmax(arrays, width, files)
    else:
        found = _adaptive_softmax(arrays, width, files)
    return found.requires_grad_(False)


def _plain_softmax(arrays: Arrays, width: int, files: ModelFiles) -> Softmax:
    weight, bias = arrays[WEIGHT], arrays[BIAS]
    wanted = (len(bias) if bias.ndim == 1 else 0, width)
    if weight.shape != wanted:
        raise _wrong_shape(WEIGHT, weight.shape, wanted, files)
    softmax = Softmax(*weight.shape)
    with torch.no_grad():
        softmax.weight.copy_(torch.from_numpy(weight))
        softmax.bias.copy_(torch.from_numpy(bias))
    return softmax


def _adaptive_softmax(arrays: Arrays, width: int, files: ModelFiles) -> AdaptiveSoftmax:
    """The sizes of the head and of the clusters tell the cutoffs."""
    state = {k[len(ADAPTIVE) + 1 :]: torch.from_numpy(v) for k, v in arrays.items()}
    tails = sorted(k for k in state if k.endswith(".1.weight"))
    head = state.get("words.head.weight")
    if head is None or head.dim() != 2 or head.shape[1] != width:
        shape = () if head is None else tuple(head.shape)
        raise _wrong_shape(f"{ADAPTIVE}/words.head.weight", shape, ("?", width), files)
    cutoffs = [len(head) - len(tails)]
    for name in tails:
        cutoffs.append(cutoffs[-1] + len(state[name]))
    softmax = AdaptiveSoftmax(cutoffs.pop(), width, cutoffs)
    try:
        softmax.load_state_dict(state)
    except RuntimeError:
        raise _wrong_shape(ADAPTIVE, "other parameters", cutoffs, files) from None
    return softmax


def _names_below(group: Any) -> List[str]:
    """Of the datasets in a group and in the groups within."""
    names: List[str] = []

    def visit(name: str, item: Any) -> None:
        if hasattr(item, "shape"):
            names.append(name)

    group.visititems(visit)
    return names


def _wrong_shape(name: str, found: Any, wanted: Any, files: ModelFiles) -> WeightsError:
    return WeightsError(
        Errors.E009.format(
            path=files.weights_name,
            name=name,
            found=found,
            wanted=wanted,
            options=files.options_name,
        )  # fmt: skip
    )


def vocabulary_beside(path: Path) -> Path:
    """Where the vocabulary of a model is: in its directory."""
    return (path if path.is_dir() else path.parent) / VOCABULARY
