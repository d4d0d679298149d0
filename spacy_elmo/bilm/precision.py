"""The precision of products."""

import warnings
from typing import Sequence

import torch

from ..errors import Warnings, require

# Of the LSTMs' products in prediction. "float32" is exact to 1e-5. The others round
# weights and inputs of the products; state, gates and sums stay in float32. "auto" is
# the fastest on a device in batches; one sentence alone can be slower.
PRECISIONS = ("float32", "bfloat16", "int8", "auto")
# What each of them needs to be fast.
NEEDS = {
    "bfloat16": "AVX512-BF16 or AMX (on a GPU: compute capability 8.0)",
    "int8": "FBGEMM (PyTorch on x86 processors)",
}
# FBGEMM's product of float32 inputs and packed int8 weights.
INT8_PRODUCT = "linear_with_input_q_dq_qweight_dq_output_fp32"


def choose_precision(
    name: str, device: torch.device, among: Sequence[str] = ("int8", "bfloat16")
) -> str:
    """The precision to use on a device.

    name (str): The one asked for, of PRECISIONS.
    among (Sequence[str]): What "auto" may take, the fastest first.
    RETURNS (str): The same; the fastest for "auto"; or "float32", with a warning, if
        the one asked for is slower than that.
    RAISES (ValueError): If there is no such precision.
    """
    require(name in PRECISIONS, "precision", f"one of {PRECISIONS}", name)
    fast = {"int8": has_int8(device), "bfloat16": has_fast_bfloat16(device)}
    if name == "auto":
        return next((low for low in among if fast[low]), "float32")
    if fast.get(name, True):
        return name
    why = {"device": device.type, "missing": NEEDS[name]}
    warnings.warn(Warnings.W002.format(precision=name, **why), stacklevel=2)
    return "float32"


def has_int8(device: torch.device) -> bool:
    """Whether this PyTorch multiplies int8 faster than float32 on a device."""
    has_product = hasattr(torch.ops.quantized, INT8_PRODUCT)
    has_engine = "fbgemm" in torch.backends.quantized.supported_engines
    return device.type == "cpu" and has_product and has_engine


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether this CPU or GPU multiplies bfloat16 faster than float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return True
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, probe, bool)() for probe in probes)
