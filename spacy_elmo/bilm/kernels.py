"""What the layers' functions share: pointwise kernels that torch.compile can fuse, and
the dtype of products.
"""

from contextlib import contextmanager
from functools import cache
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor

Func = Callable[..., Any]
_is_on = False


def use_fusion(on: bool) -> None:
    """Whether this process fuses: with a C++ compiler, in runs of many steps."""
    global _is_on
    _is_on = on


def fused(function: Func, variant: Optional[Func] = None, **options: Any) -> Func:
    """A function, or, where this process fuses, a compiled one: of its variant, if it
    has one for that. The options are those of torch.compile.
    """
    return _compiled(variant or function, **options) if _is_on else function


_compiled = cache(torch.compile)


@contextmanager
def casting(weight: Tensor) -> Iterator[torch.dtype]:
    """Turn autocast off for a function that casts by itself.

    YIELDS (torch.dtype): What it casts to: autocast's dtype if it was on for the
        device of `weight`, else that of `weight`.
    """
    device = weight.device.type
    on = torch.is_autocast_enabled(device)
    with torch.autocast(device, enabled=False):
        yield torch.get_autocast_dtype(device) if on else weight.dtype
