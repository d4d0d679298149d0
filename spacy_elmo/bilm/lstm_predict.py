"""The LSTM layer in prediction: gates in place, nothing kept for a backward pass."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .packing import packed_steps

# In float32, the input products of a chunk of time steps are one matrix product into
# a buffer of about this size: more than 32 MB would be new memory at each call.
CHUNK_BYTES = 24 << 20
# In bfloat16, rows are rounded up to a multiple of this: oneDNN compiles a kernel for
# each new shape, which takes longer than the product itself.
ROWS = 16


def predict_float32(
    x: Tensor, h: Tensor, c: Tensor, w_input: Tensor, w_recurrent: Tensor,
    projection: Optional[Tensor], batch_sizes: Sequence[int], reverse: bool,
    cell_clip: Optional[float], proj_clip: Optional[float],
) -> Tensor:  # fmt: skip
    """Run one layer over packed sequences. Shapes as in LSTMLayer.

    h, c (Floats2d): The state, changed in place.
    w_input (Floats2d): See LSTMLayer.input_weight.
    RETURNS (Floats2d): Outputs, packed as x.
    """
    n_gates = w_input.shape[1]
    x1 = F.pad(x, (1, 0), value=1.0)  # (n_tokens, 1 + projection)
    y = x.new_empty(x.shape[0], h.shape[1])
    chunks = time_chunks(batch_sizes, reverse, CHUNK_BYTES // (4 * n_gates))
    size = max((hi - lo for lo, hi, _ in chunks), default=0)
    buffer = x.new_empty(size, n_gates)
    for start, end, steps in chunks:
        gates = torch.mm(x1[start:end], w_input, out=buffer[: end - start])
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


class Chunk(NamedTuple):
    """Time steps one after the other: packed tokens start:end, and those of each step
    in the order in which a direction reads them.
    """

    start: int
    end: int
    steps: List[Tuple[int, int]]


def time_chunks(
    batch_sizes: Sequence[int], reverse: bool, max_tokens: int
) -> List[Chunk]:
    """Cut time into chunks of at most `max_tokens` tokens, or of one step."""
    chunks: List[List[Tuple[int, int]]] = []
    n_tokens = max_tokens
    for _, lo, hi in packed_steps(batch_sizes, reverse):
        n_tokens += hi - lo
        if n_tokens > max_tokens:
            chunks.append([])
            n_tokens = hi - lo
        chunks[-1].append((lo, hi))
    return [
        Chunk(min(lo for lo, _ in steps), max(hi for _, hi in steps), steps)
        for steps in chunks
    ]


def _rounded(n: int) -> int:
    return -(-n // ROWS) * ROWS
