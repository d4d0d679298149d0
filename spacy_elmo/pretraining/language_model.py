"""The files of a trained language model: the biLM in the official layout, and its
softmax in a group that readers of that layout ignore.
"""

from pathlib import Path
from typing import Union

import torch

from ..bilm import BiLM
from ..bilm.files import find_files
from ..bilm.hdf5 import open_hdf5, read_dataset
from ..bilm.official_format import write_bilm
from ..errors import Errors, WeightsError
from .softmax import Softmax

WEIGHT = "softmax/W"
BIAS = "softmax/b"
VOCABULARY = "vocab.txt"


def write_model(
    bilm: BiLM, softmax: Softmax, output: Path, *, dtype: str = "float32"
) -> None:
    """Write options.json and weights.hdf5.

    bilm (BiLM): The biLM.
    softmax (Softmax): Stored as `softmax/W` (vocabulary, projection) and `softmax/b`
        (vocabulary,).
    output (Path): Directory.
    dtype (str): "float32" or "float16".
    """
    state = {WEIGHT: softmax.weight, BIAS: softmax.bias}
    extra = {
        k: v.detach().float().cpu().numpy().astype(dtype) for k, v in state.items()
    }
    write_bilm(bilm, output, dtype=dtype, extra=extra)


def has_softmax(path: Union[str, Path]) -> bool:
    """Whether a model was written by `write_model`; the official ones were not."""
    files = find_files(path)
    with open_hdf5(files.weights, files.weights_name) as h5:
        return WEIGHT in h5 and BIAS in h5


def read_softmax(path: Union[str, Path], width: int) -> Softmax:
    """Read the softmax of a model that `write_model` wrote.

    path (str or Path): A directory, .zip or .hdf5 file.
    width (int): The projection of the biLM.
    RETURNS (Softmax): The softmax, without gradients.
    RAISES (WeightsError): If there is none, or if its shapes are wrong.
    """
    files = find_files(path)
    name = files.weights_name
    with open_hdf5(files.weights, name) as h5:
        if WEIGHT not in h5 or BIAS not in h5:
            raise WeightsError(Errors.E054.format(path=name))
        weight = read_dataset(h5, WEIGHT, name)
        bias = read_dataset(h5, BIAS, name)
    wanted = (len(bias) if bias.ndim == 1 else 0, width)
    if weight.shape != wanted:
        raise WeightsError(
            Errors.E009.format(
                path=name, name=WEIGHT, found=weight.shape, wanted=wanted,
                options=files.options_name,
            )
        )  # fmt: skip
    softmax = Softmax(*weight.shape)
    with torch.no_grad():
        softmax.weight.copy_(torch.from_numpy(weight))
        softmax.bias.copy_(torch.from_numpy(bias))
    return softmax.requires_grad_(False)


def vocabulary_beside(path: Path) -> Path:
    """Where the vocabulary of a model is: in its directory."""
    return (path if path.is_dir() else path.parent) / VOCABULARY
