"""What the layers' functions share: pointwise kernels that torch.compile can fuse, the
dtype of products, and products in float32 by the library that is faster here. On AMD's
processors with AVX-512 that is oneDNN: on some, MKL, which torch.mm calls, has half its
speed.
"""

import os
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Callable, Iterator, NamedTuple, Optional

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .tuning import SMALL_WEIGHT

Func = Callable[..., Any]
_is_on = False

# A fork does not copy torch's threads, and the child's first parallel operation would
# wait for them forever. One thread needs no others.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def use_fusion(on: bool) -> None:
    """Whether this process fuses: with a C++ compiler, in runs of many steps."""
    global _is_on
    _is_on = on


def fused(function: Func, variant: Optional[Func] = None, **options: Any) -> Func:
    """The function as it is; if this process fuses, its variant (or itself) compiled.
    The options are those of torch.compile.
    """
    return _compiled(variant or function, **options) if _is_on else function


_compiled = cache(torch.compile)


def no_autocast(x: Tensor) -> torch.autocast:
    """Turn autocast off on the device of x."""
    return torch.autocast(x.device.type, enabled=False)


@contextmanager
def casting(weight: Tensor) -> Iterator[torch.dtype]:
    """Turn autocast off for a function that casts by itself.

    YIELDS (torch.dtype): What it casts to: autocast's dtype if it was on for the
        device of `weight`, else that of `weight`.
    """
    device = weight.device.type
    on = torch.is_autocast_enabled(device)
    with no_autocast(weight):
        yield torch.get_autocast_dtype(device) if on else weight.dtype


class Weight(NamedTuple):
    """A weight (n_in, n_out) as it is, and in the layout that oneDNN chose."""

    dense: Tensor
    packed: Optional[Tensor] = None


def prefers_onednn(x: Tensor) -> bool:
    """Whether oneDNN is the faster library for products of x."""
    return x.dtype == torch.float32 and x.is_cpu and has_fast_onednn()


@cache
def has_fast_onednn() -> bool:
    """Whether oneDNN multiplies float32 faster than MKL on this processor."""
    capabilities: Any = getattr(torch.cpu, "get_capabilities", dict)()
    is_amd = str(capabilities.get("cpu_name")).startswith("AMD")
    has_product = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return is_amd and has_product and bool(capabilities.get("avx512_f"))


def matmul(x: Tensor, w: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """x w, without a gradient.

    x (Floats2d): (n, n_in).
    w (Floats2d): (n_in, n_out); it or its transpose is contiguous.
    """
    if not prefers_onednn(x):
        return torch.mm(x, w, out=out)
    y = _onednn(x, w.t(), None)
    return y if out is None else out.copy_(y)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """layer(x), with a gradient."""
    if not prefers_onednn(x) or torch.is_autocast_enabled("cpu"):
        return layer(x)
    return _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return matmul(dy, weight), matmul(dy.t(), x), dy.sum(0)


def pack(weight: Tensor) -> Weight:
    """Prepare a weight that is used more than once, and does not change."""
    if not prefers_onednn(weight):
        return Weight(weight)
    reorder = torch.ops.mkldnn._reorder_linear_weight
    return Weight(weight, reorder(weight.t().contiguous()))


def multiply(x: Tensor, weight: Weight, plus: Optional[Tensor] = None) -> Tensor:
    """x W + plus. `plus` has shape (n_out,), or (n, n_out), and then may be
    overwritten.
    """
    is_small = len(x) == 1 and weight.dense.numel() <= SMALL_WEIGHT
    if weight.packed is None or is_small:
        if plus is None:
            return x @ weight.dense
        add = torch.addmm if plus.dim() == 1 else torch.Tensor.addmm_
        return add(plus, x, weight.dense)
    if plus is None or plus.dim() == 1:
        return _onednn(x, weight.packed, plus)
    product = torch.ops.mkldnn._linear_pointwise.binary
    return product(x, plus, weight.packed, None, "add")


def _onednn(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """x W^T + b, weight and bias as in nn.Linear."""
    product = torch.ops.mkldnn._linear_pointwise.default
    return product(x, weight, bias, "none", [], "")
