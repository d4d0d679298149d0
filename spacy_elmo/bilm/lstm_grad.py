"""The LSTM layer in training: a backward pass of our own, so that the gradients of
the weights are one matrix product over all time steps, and the products may run in
bfloat16 while state and sums stay in float32.
"""

from functools import partial
from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .batching import spans_of
from .kernels import fused, matmul, prefers_onednn
from .tuning import ROW_MULTIPLE, TRAINING_PADDING

Pointwise = Callable[[Tensor], Tensor]
# Batch sizes, `keep`, the clips of the cell and of the projection, and the dtype of the
# products.
How = Tuple[Tuple[int, ...], Optional[Tensor], Tuple[float, float], torch.dtype]

aten = torch.ops.aten


def cell_forward(
    gates: Tuple[Tensor, ...], c: Tensor, keep: Tensor, clip: float, m: Tensor,
    cells: Tensor, sigmoid: Pointwise = torch.sigmoid_, tanh: Pointwise = torch.tanh_,
) -> None:  # fmt: skip
    """The pointwise part of one step, in place. All but `keep` have shape (n, dim).

    gates: Parts of [1; x_t; h_{t-1}] [b; W]; receive sigmoid(i), sigmoid(f),
        sigmoid(o), tanh(j).
    c: Holds c_{t-1} and receives c_t, in float32.
    keep: 0 for rows that start from the zero state, else 1; shape (n, 1).
    m, cells: Receive m_t = sigmoid(o) tanh(c_t) and c_t.
    """
    i, f, o, j = (gate.float() for gate in gates)
    i, f, o, j = sigmoid(i), sigmoid(f), sigmoid(o), tanh(j)
    c.mul_(keep).mul_(f).addcmul_(i, j).clamp_(-clip, clip)
    m_t = tanh(c.clone()).mul_(o)
    for saved, new in zip((*gates, m, cells), (i, f, o, j, m_t, c)):
        saved.copy_(new)


def cell_backward(
    gates: Tuple[Tensor, ...], c: Tensor, c_prev: Tensor, keep: Tensor, clip: float,
    dm: Tensor, dc: Tensor, tanh: Pointwise = torch.tanh_,
) -> None:  # fmt: skip
    """The gradient of `cell_forward`.

    gates: As `cell_forward` left them; receive the gradients of its inputs.
    c, c_prev: c_t and c_{t-1}.
    dm: Gradient of m_t.
    dc: The gradient of c_t that comes from the step after; receives that of c_{t-1}.
    """
    i, f, o, j = (gate.float() for gate in gates)
    tanh_c, d_m = tanh(c.float().clone()), dm.float()
    dc.add_(aten.tanh_backward(d_m * o, tanh_c))
    aten.hardtanh_backward.grad_input(dc, c.float(), -clip, clip, grad_input=dc)
    buffer = tanh_c.mul_(d_m)
    aten.sigmoid_backward.grad_input(buffer, o, grad_input=o)
    d_i = aten.sigmoid_backward(torch.mul(dc, j, out=buffer), i)
    aten.tanh_backward.grad_input(torch.mul(dc, i, out=buffer), j, grad_input=j)
    torch.mul(c_prev.float(), keep, out=buffer).mul_(dc)
    dc.mul_(f).mul_(keep)
    aten.sigmoid_backward.grad_input(buffer, f, grad_input=f)
    for gate, gradient in zip(gates, (d_i, f, o, j)):
        gate.copy_(gradient)


def rational_tanh(x: Tensor) -> Tensor:
    """tanh within 4e-7, by Eigen's minimax quotient: faster than an exponential."""
    x = torch.clamp(x, -7.9, 7.9)
    x2 = x * x
    p = x2 * -2.76076847742355e-16 + 2.00018790482477e-13
    for a in (-8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
              6.37261928875436e-04, 4.89352455891786e-03):  # fmt: skip
        p = p * x2 + a
    q = x2 * 1.19825839466702e-06 + 1.18534705686654e-04
    for a in (2.26843463243900e-03, 4.89352518554385e-03):
        q = q * x2 + a
    return x * p / q


def rational_sigmoid(x: Tensor) -> Tensor:
    return 0.5 + 0.5 * rational_tanh(0.5 * x)


_FORWARD = partial(cell_forward, sigmoid=rational_sigmoid, tanh=rational_tanh)
_BACKWARD = partial(cell_backward, tanh=rational_tanh)


class TrainedLSTM(torch.autograd.Function):
    """A layer over packed sequences, shapes as in LSTMLayer: outputs, and h and c after
    each row's last step. No gradient flows into the state: backpropagation through time
    is truncated there.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, kernel: Tensor,
        projection: Optional[Tensor], how: How,
    ) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        batch_sizes, keep, (cell_clip, proj_clip), dtype = how
        (N, P), (B, H) = x.shape, c0.shape
        K = 1 + P + P
        steps = spans_of(batch_sizes)
        w = _prepared(kernel[:, : 4 * H], dtype)
        w_proj = None if projection is None else projection.to(dtype)
        if keep is None:
            keep = x.new_ones(N, 1)
        xh = w.new_empty(N, len(w))
        xh[:, 0], xh[:, 1 : 1 + P], xh[:, K:] = 1.0, x, 0.0
        # In float32, one product of all inputs is faster; oneDNN has no sum in place.
        inputs_first = w.dtype == torch.float32 and not prefers_onednn(w)
        gates = w.new_empty(N, 4 * H)
        if inputs_first:
            matmul(xh[:, : 1 + P], w[: 1 + P], out=gates)
        cells, m = w.new_empty(B + N, H), w.new_empty(N, H)
        cells[:B] = c0
        y = x.new_empty(N, P, dtype=torch.float32)
        h, c = h0.float().clone(), c0.float().clone()
        run_cell = fused(cell_forward, _FORWARD)
        for lo, hi in steps:
            n = hi - lo
            xh[lo:hi, 1 + P : K] = h[:n].mul_(keep[lo:hi])
            if inputs_first:
                gates[lo:hi].addmm_(xh[lo:hi, 1 + P : K], w[1 + P : K])
            else:
                matmul(xh[lo:hi], w, out=gates[lo:hi])
            run_cell(
                gates[lo:hi].chunk(4, dim=1), c[:n], keep[lo:hi], cell_clip, m[lo:hi],
                cells[B + lo : B + hi],
            )  # fmt: skip
            h[:n] = m[lo:hi] if w_proj is None else matmul(m[lo:hi], w_proj)
            y[lo:hi] = h[:n].clamp_(-proj_clip, proj_clip)
        ctx.save_for_backward(w, w_proj, keep, xh, m, y, cells)
        ctx.gates, ctx.steps, ctx.clips = gates, steps, (cell_clip, proj_clip)
        ctx.shape, ctx.n_rows, ctx.inputs_first = kernel.shape, B, inputs_first
        ctx.mark_non_differentiable(h, c)
        return y, h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dh_last: Tensor, dc_last: Tensor) -> Any:
        w, w_proj, keep, xh, m, y, cells = ctx.saved_tensors
        # Gradients overwrite the gates, so backward can run only once.
        gates, ctx.gates = ctx.gates, None
        cell_clip, proj_clip = ctx.clips
        B, H, P, K = ctx.n_rows, cells.shape[1], y.shape[1], ctx.shape[0]
        d_proj, dx = w.new_empty(y.shape), dy.new_empty(y.shape)
        dh, dc = dy.new_zeros(B, P), dy.new_zeros(B, H)
        run_cell = fused(cell_backward, _BACKWARD)
        # Where the cells of the step before begin.
        before = [0, *(B + lo for lo, _ in ctx.steps)]
        for (lo, hi), start in reversed(list(zip(ctx.steps, before))):
            n = hi - lo
            d_h = dh[:n].add_(dy[lo:hi])
            aten.hardtanh_backward.grad_input(
                d_h, y[lo:hi], -proj_clip, proj_clip, grad_input=d_h
            )
            d_proj[lo:hi] = d_h
            dm = d_proj[lo:hi]
            if w_proj is not None:
                dm = matmul(dm, w_proj.t())
            run_cell(
                gates[lo:hi].chunk(4, dim=1), cells[B + lo : B + hi],
                cells[start : start + n], keep[lo:hi], cell_clip, dm, dc[:n],
            )  # fmt: skip
            if ctx.inputs_first:
                dh_prev = matmul(gates[lo:hi], w[1 + P : K].t())
            else:
                dxh = matmul(gates[lo:hi], w[1:K].t())
                dx[lo:hi] = dxh[:, :P]
                dh_prev = dxh[:, P:]
            torch.mul(dh_prev, keep[lo:hi], out=d_h)
        if ctx.inputs_first:
            matmul(gates, w[1 : 1 + P].t(), out=dx)
        # Transposed beforehand: faster in bfloat16.
        d_kernel = dy.new_zeros(ctx.shape)
        d_kernel[:, : gates.shape[1]] = matmul(xh.t().contiguous(), gates)[:K]
        d_projection = None
        if w_proj is not None:
            d_projection = matmul(m.t(), d_proj).float()
        return dx, None, None, d_kernel, d_projection, None


def _prepared(kernel: Tensor, dtype: torch.dtype) -> Tensor:
    """[b; W] in a dtype, with the +1 of the forget gate, padded rows and columns."""
    n_rows, n = kernel.shape
    n_padded = n_rows + -n_rows % ROW_MULTIPLE
    w = kernel.new_zeros(n_padded, n + TRAINING_PADDING, dtype=dtype)[:, :n]
    if prefers_onednn(w):
        w = kernel.new_zeros(n_padded, n)  # as `matmul` wants it
    w[:n_rows] = kernel
    w[0, n // 4 : n // 2] += 1.0
    return w
