from typing import Optional

import torch
from thinc.api import get_current_ops

from ..errors import Errors


def choose_device(name: Optional[str]) -> torch.device:
    """The device of that name; None for where Thinc's ops are.

    RAISES (ValueError): If this machine has no such device.
    """
    if name is None:
        on_gpu = get_current_ops().device_type == "gpu" and torch.cuda.is_available()
        return torch.device("cuda" if on_gpu else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        reason = str(e).split("\n")[0]
        raise ValueError(Errors.E041.format(device=name, reason=reason)) from None
    return device
