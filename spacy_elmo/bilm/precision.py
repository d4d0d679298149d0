"""The precision of the LSTMs' products in prediction."""

import warnings

import torch

from ..errors import Errors, Warnings

# "float32" is exact to 1e-5. The others round weights and inputs of the products;
# state, gates and sums stay in float32. "auto" is the fastest on a device.
PRECISIONS = ("float32", "bfloat16", "auto")
# What computes bfloat16 fast.
FAST_BFLOAT16 = {"cpu": "AVX512-BF16 or AMX", "cuda": "compute capability 8.0"}


def choose_precision(name: str, device: torch.device) -> str:
    """The precision to use on a device, where another was asked for than is fast.

    name (str): One of PRECISIONS.
    device (torch.device): Where the biLM runs.
    RETURNS (str): The same, what "auto" stands for there, or, with a warning,
        "float32" for one that is slower than that.
    RAISES (ValueError): If there is no such precision.
    """
    check_precision(name)
    fast = has_fast_bfloat16(device)
    if name == "auto":
        return "bfloat16" if fast else "float32"
    if name == "bfloat16" and not fast:
        missing = FAST_BFLOAT16[device.type]
        warning = Warnings.W002.format(device=device.type, missing=missing)
        warnings.warn(warning, stacklevel=2)
        return "float32"
    return name


def check_precision(name: str) -> None:
    """RAISES (ValueError): If there is no such precision."""
    if name not in PRECISIONS:
        known = ", ".join(repr(known) for known in PRECISIONS)
        raise ValueError(Errors.E021.format(precision=name, known=known))


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether this CPU or GPU multiplies bfloat16 faster than float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return True
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in probes)
