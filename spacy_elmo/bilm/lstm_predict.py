"""The LSTM layer in prediction: gates in place, nothing kept for a backward pass."""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .packing import packed_steps

# In float32, the input products of a chunk of time steps are one matrix product; this
# many tokens bound its size (64 MB at 4 * 4096 gates).
CHUNK_TOKENS = 1024
# In bfloat16, rows are rounded up to a multiple of this: oneDNN compiles a kernel for
# each new shape, which takes longer than the product itself.
ROWS = 16


def predict_float32(
    x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor,
    projection: Optional[Tensor], batch_sizes: Sequence[int], reverse: bool,
    cell_clip: Optional[float], proj_clip: Optional[float],
) -> Tensor:  # fmt: skip
    """Run one layer over packed sequences. Shapes as in LSTMLayer.

    h, c (Floats2d): The state, changed in place.
    bias (Floats1d): With the forget gate's +1.
    RETURNS (Floats2d): Outputs, packed as x.
    """
    width = x.shape[1]
    w_input, w_recurrent = weight[:width], weight[width:]
    y = x.new_empty(x.shape[0], h.shape[1])
    for steps in time_chunks(batch_sizes, reverse):
        start = min(lo for lo, _ in steps)
        end = max(hi for _, hi in steps)
        gates = (x[start:end] @ w_input).add_(bias)  # (n, 4 * dim)
        for lo, hi in steps:
            n = hi - lo
            g = gates[lo - start : hi - start].addmm_(h[:n], w_recurrent)
            m = _cell(g, c[:n], cell_clip)
            if projection is None:
                h[:n] = m
            else:
                torch.mm(m, projection, out=h[:n])
                if proj_clip is not None:
                    h[:n].clamp_(-proj_clip, proj_clip)
            y[lo:hi] = h[:n]
    return y


def predict_bfloat16(
    x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor,
    projection: Optional[Tensor], batch_sizes: Sequence[int], reverse: bool,
    cell_clip: Optional[float], proj_clip: Optional[float],
) -> Tensor:  # fmt: skip
    """As `predict_float32`, with products of bfloat16 weights. State, gates and sums
    stay in float32.
    """
    width, n_gates = x.shape[1], weight.shape[1]
    n_rows = _rounded(max(batch_sizes, default=0))
    xh = weight.new_zeros(n_rows, width + h.shape[1])
    gates = x.new_empty(n_rows, n_gates)
    m_low = weight.new_zeros(n_rows, n_gates // 4)
    low = x.to(weight.dtype)
    y = x.new_empty(x.shape[0], h.shape[1])
    for _, lo, hi in packed_steps(batch_sizes, reverse):
        n, rows = hi - lo, _rounded(hi - lo)
        xh[:n, :width] = low[lo:hi]
        xh[:n, width:] = h[:n]
        g = gates[:n].copy_((xh[:rows] @ weight)[:n]).add_(bias)
        m = _cell(g, c[:n], cell_clip)
        if projection is None:
            h[:n] = m
        else:
            m_low[:n] = m
            h[:n] = (m_low[:rows] @ projection)[:n]
            if proj_clip is not None:
                h[:n].clamp_(-proj_clip, proj_clip)
        y[lo:hi] = h[:n]
    return y


def _cell(g: Tensor, c: Tensor, clip: Optional[float]) -> Tensor:
    """The pointwise part of one step, which overwrites the gates g (n, 4 * dim) and
    the cells c (n, dim).

    RETURNS (Floats2d): sigmoid(o) tanh(c_t), shape (n, dim).
    """
    H = c.shape[1]
    g[:, : 3 * H].sigmoid_()
    i, f, o, j = g.split(H, dim=1)
    c.mul_(f).addcmul_(i, j.tanh_())
    if clip is not None:
        c.clamp_(-clip, clip)
    return torch.mul(torch.tanh(c), o, out=i)


def time_chunks(
    batch_sizes: Sequence[int], reverse: bool
) -> List[List[Tuple[int, int]]]:
    """The (start, end) of each time step in packed order, in the order in which a
    direction reads them, cut into chunks of about CHUNK_TOKENS tokens.
    """
    chunks: List[List[Tuple[int, int]]] = []
    n_tokens = CHUNK_TOKENS
    for _, lo, hi in packed_steps(batch_sizes, reverse):
        if n_tokens + hi - lo > CHUNK_TOKENS:
            chunks.append([])
            n_tokens = 0
        chunks[-1].append((lo, hi))
        n_tokens += hi - lo
    return chunks


def _rounded(n: int) -> int:
    return -(-n // ROWS) * ROWS
