"""What this machine multiplies fast."""

import torch


def has_fast_bfloat16(device: str) -> bool:
    """Whether this CPU or GPU multiplies bfloat16 faster than float32.

    device (str): "cpu", "cuda" ...
    """
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    if device != "cpu":
        return True
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in probes)
