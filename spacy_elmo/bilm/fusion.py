"""Pointwise functions that torch.compile can fuse."""

from functools import cache
from typing import Any, Callable, Optional

import torch

Func = Callable[..., Any]
_is_on = False


def use_fusion(on: bool) -> None:
    """Whether this process fuses. That needs a C++ compiler on CPUs, and pays from some
    hundred steps of training on.
    """
    global _is_on
    _is_on = on


def fused(function: Func, variant: Optional[Func] = None, **options: Any) -> Func:
    """A function, or, where this process fuses, a compiled one: of its variant, if it
    has one for that. The options are those of torch.compile.
    """
    return _compiled(variant or function, **options) if _is_on else function


_compiled = cache(torch.compile)
