"""Pointwise functions that torch.compile can fuse."""

from functools import cache, partial, wraps
from typing import Any, Callable, Optional, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])
_is_on = False


def use_fusion(on: bool) -> None:
    """Whether this process runs its `fusable` functions fused. That needs a C++
    compiler on CPUs, and pays from some hundred steps of training on.
    """
    global _is_on
    _is_on = on


def fusable(
    *, dynamic: Optional[bool] = None, **fused: Any
) -> Callable[[Function], Function]:
    """Decorate a function of positional arguments.

    dynamic (bool): Whether shapes change from call to call; None finds out.
    **fused: Keyword arguments of the function where it runs fused.
    """

    def decorate(function: Function) -> Function:
        @cache
        def compiled() -> Any:
            # Not through `partial` without need: torch counts all partial functions as
            # one, of which it compiles no more than eight variants.
            chosen = partial(function, **fused) if fused else function
            return torch.compile(chosen, dynamic=dynamic)

        @wraps(function)
        def run(*args: Any) -> Any:
            return compiled()(*args) if _is_on else function(*args)

        return run  # type: ignore[return-value]

    return decorate
