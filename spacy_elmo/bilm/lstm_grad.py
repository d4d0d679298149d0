"""The LSTM layer in training: a backward pass of our own, so that the gradients of
the weights are one matrix product over all time steps, and the products may run in
bfloat16 while state and sums stay in float32.
"""

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .packing import packed_steps

Cell = Callable[..., Any]


def lstm_train(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight: Tensor,
    bias: Tensor,
    projection: Optional[Tensor],
    batch_sizes: Sequence[int],
    reverse: bool = False,
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
            x, h0, c0, weight, bias, projection, tuple(batch_sizes), reverse, keep,
            cell_clip, proj_clip, dtype,
        )  # fmt: skip


def cell_forward(
    pre: Tensor, bias: Tensor, c_prev: Tensor, keep: Tensor, clip: float
) -> Tuple[Tensor, ...]:
    """The pointwise part of one step.

    pre: [x_t; h_{t-1}] W, shape (n, 4 * dim), gates in the order i, f, o, j.
    RETURNS: sigmoid(i), sigmoid(f), sigmoid(o), tanh(j), c_t and
        m_t = sigmoid(o) tanh(c_t), shape (n, dim) each.
    """
    i, f, o, j = (pre.float() + bias).chunk(4, dim=1)
    i, f, o, j = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), _tanh(j)
    c = torch.clamp(f * (c_prev * keep) + i * j, -clip, clip)
    low = pre.dtype
    return i.to(low), f.to(low), o.to(low), j.to(low), c, (o * _tanh(c)).to(low)


def cell_backward(
    i: Tensor, f: Tensor, o: Tensor, j: Tensor, c: Tensor, c_prev: Tensor,
    keep: Tensor, clip: float, dm: Tensor, dc: Tensor,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """The gradient of `cell_forward`.

    dm: Gradient of m_t. dc: Gradient of c_t that comes from the step after.
    RETURNS: The gradient of `pre`, (n, 4 * dim), and that of c_{t-1}, (n, dim).
    """
    low = i.dtype
    i, f, o, j, dm = i.float(), f.float(), o.float(), j.float(), dm.float()
    tanh_c = _tanh(c)
    dc = torch.where(c.abs() < clip, dc + dm * o * (1 - tanh_c * tanh_c), 0.0)
    di, df = dc * j * i * (1 - i), dc * (c_prev * keep) * f * (1 - f)
    do, dj = dm * tanh_c * o * (1 - o), dc * i * (1 - j * j)
    d_pre = torch.cat([di.to(low), df.to(low), do.to(low), dj.to(low)], dim=1)
    return d_pre, dc * f * keep


def _tanh(x: Tensor) -> Tensor:
    # torch.compile vectorises the sigmoid on CPUs, but not the tanh.
    return 2 * torch.sigmoid(2 * x) - 1


_cells: Tuple[Cell, Cell] = (cell_forward, cell_backward)


def compile_cells() -> None:
    """Fuse the pointwise part of a step by torch.compile, for this process. Needs a
    C++ compiler on CPUs; pays from some hundred steps on.
    """
    global _cells
    _cells = (torch.compile(cell_forward), torch.compile(cell_backward))


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, weight: Tensor, bias: Tensor,
        projection: Optional[Tensor], batch_sizes: Tuple[int, ...], reverse: bool,
        keep: Optional[Tensor], cell_clip: Optional[float], proj_clip: Optional[float],
        dtype: torch.dtype,
    ) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        N, P, H = x.shape[0], h0.shape[1], c0.shape[1]
        steps = packed_steps(batch_sizes, reverse)
        clip = float("inf") if cell_clip is None else cell_clip
        w = weight.to(dtype)
        w_proj = None if projection is None else projection.to(dtype)
        b = bias.detach().clone()
        b[H : 2 * H] += 1.0
        ones = x.new_ones(max(batch_sizes, default=0), 1)
        xh = torch.empty(N, x.shape[1] + P, dtype=dtype, device=x.device)
        xh[:, : x.shape[1]] = x
        gates: List[Tuple[Tensor, ...]] = [()] * len(batch_sizes)
        cells: List[Tensor] = [c0] * len(batch_sizes)
        m = torch.empty(N, H, dtype=dtype, device=x.device)
        y = torch.empty(N, P, dtype=torch.float32, device=x.device)
        h, c = h0.float().clone(), c0.float().clone()
        forward_cell = _cells[0]
        for s, (t, lo, hi) in enumerate(steps):
            n = hi - lo
            k = ones[:n] if keep is None else keep[lo:hi]
            torch.mul(h[:n], k, out=h[:n])
            xh[lo:hi, x.shape[1] :] = h[:n]
            c_prev = _previous(cells, c0, steps, s)
            *gates[t], cells[t], m_t = forward_cell(xh[lo:hi] @ w, b, c_prev, k, clip)
            m[lo:hi] = m_t
            if s + 1 == len(steps) or batch_sizes[steps[s + 1][0]] < n:
                c[:n] = cells[t]
            h_t = m_t if w_proj is None else m_t @ w_proj
            y[lo:hi] = h_t
            if w_proj is not None and proj_clip is not None:
                y[lo:hi].clamp_(-proj_clip, proj_clip)
            h[:n] = y[lo:hi]
        ctx.save_for_backward(c0, w, w_proj, keep, xh, m, y)
        ctx.gates, ctx.cells = gates, cells
        ctx.steps, ctx.clips = steps, (clip, proj_clip)
        ctx.input_width = x.shape[1]
        ctx.mark_non_differentiable(h, c)
        return y, h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dh_last: Tensor, dc_last: Tensor) -> Any:
        c0, w, w_proj, keep, xh, m, y = ctx.saved_tensors
        clip, proj_clip = ctx.clips
        N, D, H = y.shape[0], ctx.input_width, c0.shape[1]
        d_gates = torch.empty(N, 4 * H, dtype=w.dtype, device=w.device)
        d_proj = torch.empty(N, y.shape[1], dtype=w.dtype, device=w.device)
        dx = torch.empty(N, D, dtype=dy.dtype, device=dy.device)
        n_rows = c0.shape[0]
        dh = torch.zeros(n_rows, y.shape[1], device=dy.device)
        dc = torch.zeros(n_rows, H, device=dy.device)
        ones = dy.new_ones(n_rows, 1)
        backward_cell = _cells[1]
        w_t = w.t()
        for s in range(len(ctx.steps) - 1, -1, -1):
            t, lo, hi = ctx.steps[s]
            n = hi - lo
            k = ones[:n] if keep is None else keep[lo:hi]
            dy_t = dy[lo:hi] + dh[:n]
            if w_proj is not None and proj_clip is not None:
                dy_t.masked_fill_(y[lo:hi].abs() >= proj_clip, 0.0)
            d_proj[lo:hi] = dy_t
            dm = d_proj[lo:hi] if w_proj is None else d_proj[lo:hi] @ w_proj.t()
            c_prev = _previous(ctx.cells, c0, ctx.steps, s)
            d_pre, dc_prev = backward_cell(
                *ctx.gates[t], ctx.cells[t], c_prev, k, clip, dm, dc[:n]
            )
            d_gates[lo:hi] = d_pre
            dc[:n] = dc_prev
            dxh = d_pre @ w_t
            dx[lo:hi] = dxh[:, :D]
            torch.mul(dxh[:, D:], k, out=dh[:n])
        d_weight = (xh.t() @ d_gates).float()
        # A product, because a sum over bfloat16 would first copy it to float32.
        d_bias = (d_gates.new_ones(1, N) @ d_gates)[0].float()
        d_projection = None if w_proj is None else (m.t() @ d_proj).float()
        nothing = (None,) * 6
        return (dx, None, None, d_weight, d_bias, d_projection, *nothing)


def _previous(
    cells: List[Tensor], c0: Tensor, steps: List[Tuple[int, int, int]], s: int
) -> Tensor:
    """The cells that the s-th step read: those of the step before, and the initial
    ones of the rows that join at this step.
    """
    _, lo, hi = steps[s]
    n = hi - lo
    if s == 0:
        return c0[:n]
    before = cells[steps[s - 1][0]][:n]
    if before.shape[0] == n:
        return before
    return torch.cat([before, c0[before.shape[0] : n]])
