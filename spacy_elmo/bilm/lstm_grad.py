"""The LSTM layer in training: a backward pass of our own, so that the gradients of
the weights are one matrix product over all time steps, and the products may run in
bfloat16 while state and sums stay in float32.
"""

from functools import partial
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .packing import packed_steps

Cell = Callable[..., Any]
Pointwise = Callable[[Tensor], Tensor]


def lstm_train(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight: Tensor,
    bias: Tensor,
    projection: Optional[Tensor],
    batch_sizes: Sequence[int],
    keep: Optional[Tensor] = None,
    cell_clip: Optional[float] = None,
    proj_clip: Optional[float] = None,
) -> Tuple[Tensor, Tensor, Tensor]:
    """Run one LSTM layer so that it can be differentiated.

    Shapes as in LSTMLayer. The products run in the dtype of torch's autocast for
    the device if that is on, else in that of the weights. No gradient flows into
    h0 and c0: backpropagation through time is truncated there.

    RETURNS (Tuple[Floats2d, Floats2d, Floats2d]): y (n_tokens, projection), and h
        and c after each row's last step, detached.
    """
    device = x.device.type
    dtype = (
        torch.get_autocast_dtype(device)
        if torch.is_autocast_enabled(device)
        else weight.dtype
    )
    with torch.autocast(device, enabled=False):
        run: Callable[..., Tuple[Tensor, Tensor, Tensor]] = _LSTM.apply
        return run(
            x, h0, c0, weight, bias, projection, tuple(batch_sizes), keep,
            cell_clip, proj_clip, dtype,
        )  # fmt: skip


def cell_forward(
    i_out: Tensor, f_out: Tensor, o_out: Tensor, j_out: Tensor, m_out: Tensor,
    c_out: Tensor, c: Tensor, pre: Tensor, bias: Tensor, keep: Tensor, clip: float,
    sigmoid: Pointwise = torch.sigmoid, tanh: Pointwise = torch.tanh,
) -> None:  # fmt: skip
    """The pointwise part of one step. All but `pre` and `bias` have shape (n, dim).
    What is kept for the backward pass has the dtype of the products, for memory is
    what a step waits for.

    i_out, f_out, o_out, j_out: Receive sigmoid(i), sigmoid(f), sigmoid(o), tanh(j).
    m_out, c_out: Receive m_t = sigmoid(o) tanh(c_t) and c_t.
    c: Holds c_{t-1} and receives c_t.
    pre: [x_t; h_{t-1}] W, shape (n, 4 * dim), gates in the order i, f, o, j.
    """
    i, f, o, j = (pre.float() + bias).chunk(4, dim=1)
    i, f, o, j = sigmoid(i), sigmoid(f), sigmoid(o), tanh(j)
    c_t = torch.clamp(f * (c * keep) + i * j, -clip, clip)
    i_out.copy_(i)
    f_out.copy_(f)
    o_out.copy_(o)
    j_out.copy_(j)
    m_out.copy_(o * tanh(c_t))
    c_out.copy_(c_t)
    c.copy_(c_t)


def cell_backward(
    i: Tensor, f: Tensor, o: Tensor, j: Tensor, c: Tensor, c_prev: Tensor,
    keep: Tensor, clip: float, dm: Tensor, dc: Tensor,
    tanh: Pointwise = torch.tanh,
) -> None:  # fmt: skip
    """The gradient of `cell_forward`.

    i, f, o, j: The gates; receive their gradients, those of the parts of `pre`.
    dm: Gradient of m_t.
    dc: The gradient of c_t that comes from the step after; receives that of c_{t-1}.
    """
    i_, f_, o_, j_ = i.float(), f.float(), o.float(), j.float()
    tanh_c = tanh(c.float())
    d_m = dm.float()
    d_c = dc + d_m * o_ * (1 - tanh_c * tanh_c)
    d_c = torch.where(c.float().abs() < clip, d_c, 0.0)
    di, df = d_c * j_ * i_ * (1 - i_), d_c * (c_prev.float() * keep) * f_ * (1 - f_)
    do, dj = d_m * tanh_c * o_ * (1 - o_), d_c * i_ * (1 - j_ * j_)
    dc.copy_(d_c * f_ * keep)
    i.copy_(di)
    f.copy_(df)
    o.copy_(do)
    j.copy_(dj)


def rational_tanh(x: Tensor) -> Tensor:
    """tanh within 3e-7, the minimax quotient that Eigen uses: torch.compile makes
    vector instructions of it, where an exponential costs several times as much.
    """
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


_cells: Tuple[Cell, Cell] = (cell_forward, cell_backward)


def compile_cells() -> None:
    """Fuse the pointwise part of a step by torch.compile, for this process. Needs a
    C++ compiler on CPUs; pays from some hundred steps on.
    """
    global _cells
    forward, backward = _cells
    _cells = (
        torch.compile(partial(forward, sigmoid=rational_sigmoid, tanh=rational_tanh)),
        torch.compile(partial(backward, tanh=rational_tanh)),
    )


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, weight: Tensor, bias: Tensor,
        projection: Optional[Tensor], batch_sizes: Tuple[int, ...],
        keep: Optional[Tensor], cell_clip: Optional[float], proj_clip: Optional[float],
        dtype: torch.dtype,
    ) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        N, P, H = x.shape[0], h0.shape[1], c0.shape[1]
        steps = packed_steps(batch_sizes)
        clip = float("inf") if cell_clip is None else cell_clip
        w = weight.to(dtype)
        w_proj = None if projection is None else projection.to(dtype)
        b = bias.detach().clone()
        b[H : 2 * H] += 1.0
        ones = x.new_ones(max(batch_sizes, default=0), 1)
        xh = torch.empty(N, x.shape[1] + P, dtype=dtype, device=x.device)
        xh[:, : x.shape[1]] = x
        new = xh.new_empty
        gates = [new(N, H) for _ in range(4)]
        cells, m = new(N, H), new(N, H)
        y = torch.empty(N, P, dtype=torch.float32, device=x.device)
        h, c = h0.float().clone(), c0.float().clone()
        forward_cell = _cells[0]
        for lo, hi in steps:
            n = hi - lo
            k = ones[:n] if keep is None else keep[lo:hi]
            torch.mul(h[:n], k, out=h[:n])
            xh[lo:hi, x.shape[1] :] = h[:n]
            m_t = m[lo:hi]
            forward_cell(
                *(gate[lo:hi] for gate in gates), m_t, cells[lo:hi], c[:n],
                xh[lo:hi] @ w, b, k, clip,
            )  # fmt: skip
            h_t = m_t if w_proj is None else m_t @ w_proj
            y[lo:hi] = h_t
            if w_proj is not None and proj_clip is not None:
                y[lo:hi].clamp_(-proj_clip, proj_clip)
            h[:n] = y[lo:hi]
        ctx.save_for_backward(c0, w, w_proj, keep, xh, m, y, cells)
        ctx.gates, ctx.steps, ctx.clips = gates, steps, (clip, proj_clip)
        ctx.input_width = x.shape[1]
        ctx.mark_non_differentiable(h, c)
        return y, h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dh_last: Tensor, dc_last: Tensor) -> Any:
        c0, w, w_proj, keep, xh, m, y, cells = ctx.saved_tensors
        # The gradients of the gates take their place, and so this runs only once.
        gates, ctx.gates = ctx.gates, None
        clip, proj_clip = ctx.clips
        N, D, H = y.shape[0], ctx.input_width, c0.shape[1]
        d_proj = torch.empty(N, y.shape[1], dtype=w.dtype, device=w.device)
        dx = torch.empty(N, D, dtype=dy.dtype, device=dy.device)
        n_rows = c0.shape[0]
        dh = torch.zeros(n_rows, y.shape[1], device=dy.device)
        dc = torch.zeros(n_rows, H, device=dy.device)
        ones = dy.new_ones(n_rows, 1)
        backward_cell = _cells[1]
        w_gates = [part.t() for part in w.chunk(4, dim=1)]
        for s in range(len(ctx.steps) - 1, -1, -1):
            lo, hi = ctx.steps[s]
            n = hi - lo
            k = ones[:n] if keep is None else keep[lo:hi]
            dy_t = dy[lo:hi] + dh[:n]
            if w_proj is not None and proj_clip is not None:
                dy_t.masked_fill_(y[lo:hi].abs() >= proj_clip, 0.0)
            d_proj[lo:hi] = dy_t
            dm = d_proj[lo:hi] if w_proj is None else d_proj[lo:hi] @ w_proj.t()
            d_gates = [gate[lo:hi] for gate in gates]
            backward_cell(
                *d_gates, cells[lo:hi], _previous(cells, c0, ctx.steps, s), k, clip,
                dm, dc[:n],
            )  # fmt: skip
            dxh = (d_gates[0] @ w_gates[0]).float()
            for d_gate, w_gate in zip(d_gates[1:], w_gates[1:]):
                dxh += d_gate @ w_gate
            dx[lo:hi] = dxh[:, :D]
            torch.mul(dxh[:, D:], k, out=dh[:n])
        # Transposed beforehand, and with the input of the bias as the last row: one
        # fast product a gate.
        xh1 = xh.new_ones(xh.shape[1] + 1, N)
        xh1[:-1] = xh.t()
        d_both = torch.cat([xh1 @ d_gate for d_gate in gates], dim=1).float()
        d_projection = None if w_proj is None else (m.t() @ d_proj).float()
        nothing = (None,) * 5
        return (dx, None, None, d_both[:-1], d_both[-1], d_projection, *nothing)


def _previous(
    cells: Tensor, c0: Tensor, steps: List[Tuple[int, int]], s: int
) -> Tensor:
    """The cells that the s-th step read: those of the step before, of the rows that
    go on.
    """
    lo, hi = steps[s]
    n = hi - lo
    if s == 0:
        return c0[:n].to(cells.dtype)
    start = steps[s - 1][0]
    return cells[start : start + n]
