"""The LSTM layer in prediction: gates in place, nothing kept for a backward pass."""

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .packing import packed_steps

# In float32, a step of so many rows is one product of its inputs and its state. Where
# there are fewer, reading the weights takes longer than the product: there the inputs
# of a chunk of steps, of about so many tokens, share one.
ROWS_ALONE = 128
CHUNK_TOKENS = 384
# In bfloat16, rows are rounded up to a multiple of this: oneDNN compiles a kernel for
# each new shape, which takes longer than the product itself.
ROWS = 16

# Copies of rows of the state before each step, and after the last: see Reading.
Moves = Sequence[Sequence[Tuple[int, Tensor]]]


def predict_float32(
    x: Tensor, h: Tensor, c: Tensor, weight: Tensor, projection: Optional[Tensor],
    sizes: Sequence[int], moves: Optional[Moves], cell_clip: Optional[float],
    proj_clip: Optional[float],
) -> Tensor:  # fmt: skip
    """Run one layer over packed sequences. Arguments as in LSTMLayer.

    h, c (Floats2d): The state, changed in place.
    weight (Floats2d): See LSTMLayer.joined_weight.
    RETURNS (Floats2d): Outputs, packed as x.
    """
    n_gates, n_inputs = weight.shape[1], 1 + x.shape[1]
    w_input, w_state, w_gates = weight[:n_inputs], weight[n_inputs:], _by_gate(weight)
    chunks = time_chunks(sizes, CHUNK_TOKENS)
    before = iter(moves or ())
    size = max((hi - lo for lo, hi, _ in chunks), default=0)
    buffer = x.new_empty(size * n_gates)
    xh = x.new_ones(len(h), len(weight))  # rows [1; x_t; h_{t-1}]
    h_last = xh[:, n_inputs:]
    h_last.copy_(h)
    y = x.new_empty(x.shape[0], h.shape[1])
    for start, end, steps in chunks:
        if len(steps) > 1:
            x1 = F.pad(x[start:end], (1, 0), value=1.0)
            inputs = torch.mm(x1, w_input, out=_rows(buffer, end - start, n_gates))
        for lo, hi in steps:
            n = hi - lo
            _move(next(before, ()), h_last, c)
            if len(steps) > 1:
                g = inputs[lo - start : hi - start].addmm_(h_last[:n], w_state)
                gates = _by_gate(g)
            else:
                xh[:n, 1:n_inputs] = x[lo:hi]
                # A product a gate: threads share them out, and what a gate's
                # pointwise operations read lies in one piece.
                gates = _rows(buffer, n, n_gates).view(4, n, -1)
                torch.bmm(xh[:n].expand(4, -1, -1), w_gates, out=gates)
            _project(_cell(gates, c[:n], cell_clip), projection, proj_clip, y[lo:hi])
            h_last[:n] = y[lo:hi]
    _move(next(before, ()), h_last, c)
    h.copy_(h_last)
    return y


def predict_repeated(
    x: Tensor, index: Tensor, h: Tensor, c: Tensor, weight: Tensor,
    projection: Optional[Tensor], sizes: Sequence[int], moves: Optional[Moves],
    cell_clip: Optional[float], proj_clip: Optional[float],
) -> Tensor:  # fmt: skip
    """As `predict_float32`, for inputs that are read many times: their products are
    made once for all steps, and only those of the state at each step.

    x (Floats2d): The distinct inputs, shape (n, projection).
    index (Ints1d): The one that each token reads, shape (n_tokens,).
    """
    n_inputs, n_gates = 1 + x.shape[1], weight.shape[1]
    w_input, w_state = _by_gate(weight[:n_inputs]), _by_gate(weight[n_inputs:])
    inputs = torch.bmm(F.pad(x, (1, 0), value=1.0).expand(4, -1, -1), w_input)
    buffer = x.new_empty(max(sizes) * n_gates)
    y = x.new_empty(len(index), h.shape[1])
    before = iter(moves or ())
    for lo, hi in packed_steps(sizes):
        n = hi - lo
        _move(next(before, ()), h, c)
        gates = _rows(buffer, n, n_gates).view(4, n, -1)
        for gate, of_words in zip(gates, inputs):
            torch.index_select(of_words, 0, index[lo:hi], out=gate)
        gates.baddbmm_(h[:n].expand(4, -1, -1), w_state)
        _project(_cell(gates, c[:n], cell_clip), projection, proj_clip, y[lo:hi])
        h[:n] = y[lo:hi]
    _move(next(before, ()), h, c)
    return y


def predict_bfloat16(
    x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor,
    projection: Optional[Tensor], sizes: Sequence[int], moves: Optional[Moves],
    cell_clip: Optional[float], proj_clip: Optional[float],
) -> Tensor:  # fmt: skip
    """As `predict_float32`, with products of bfloat16 weights. State, gates and sums
    stay in float32.
    """
    width, n_gates = x.shape[1], weight.shape[1]
    n_rows = _rounded(max(sizes, default=0))
    xh = weight.new_zeros(n_rows, width + h.shape[1])
    buffer = x.new_empty(n_rows * n_gates)
    m_low = weight.new_zeros(n_rows, n_gates // 4)
    low = x.to(weight.dtype)
    bias = bias.view(4, 1, -1)
    y = x.new_empty(x.shape[0], h.shape[1])
    before = iter(moves or ())
    for lo, hi in packed_steps(sizes):
        n, rows = hi - lo, _rounded(hi - lo)
        _move(next(before, ()), h, c)
        xh[:n, :width] = low[lo:hi]
        xh[:n, width:] = h[:n]
        gates = _rows(buffer, n, n_gates).view(4, n, -1)
        gates.copy_(_by_gate((xh[:rows] @ weight)[:n])).add_(bias)
        m = _cell(gates, c[:n], cell_clip)
        if projection is None:
            h[:n] = m
        else:
            m_low[:n] = m
            h[:n] = (m_low[:rows] @ projection)[:n]
            if proj_clip is not None:
                h[:n].clamp_(-proj_clip, proj_clip)
        y[lo:hi] = h[:n]
    _move(next(before, ()), h, c)
    return y


def _move(copies: Iterable[Tuple[int, Tensor]], h: Tensor, c: Tensor) -> None:
    """Copy rows of the state, in place."""
    for start, rows in copies:
        for part in (h, c):
            part[start : start + len(rows)] = part[rows]


def _by_gate(g: Tensor) -> Tensor:
    """Columns of the four gates side by side, (n, 4 * dim), as (4, n, dim)."""
    gates: Tensor = g.unflatten(1, (4, -1))
    return gates.transpose(0, 1)


def _rows(buffer: Tensor, n: int, width: int) -> Tensor:
    return buffer[: n * width].view(n, width)


def _cell(gates: Tensor, c: Tensor, clip: Optional[float]) -> Tensor:
    """The pointwise part of one step, which overwrites the gates (4, n, dim) and the
    cells c (n, dim).

    RETURNS (Floats2d): sigmoid(o) tanh(c_t), shape (n, dim).
    """
    gates[:3].sigmoid_()
    i, f, o, j = gates
    c.mul_(f).addcmul_(i, j.tanh_())
    if clip is not None:
        c.clamp_(-clip, clip)
    return torch.mul(torch.tanh(c), o, out=i)


def _project(
    m: Tensor, projection: Optional[Tensor], clip: Optional[float], y: Tensor
) -> None:
    """Write h_t (n, projection), given m_t (n, dim)."""
    if projection is None:
        y.copy_(m)
        return
    torch.mm(m, projection, out=y)
    if clip is not None:
        y.clamp_(-clip, clip)


class Chunk(NamedTuple):
    """Time steps one after the other: packed tokens start:end, and those of each
    step.
    """

    start: int
    end: int
    steps: List[Tuple[int, int]]


def time_chunks(sizes: Sequence[int], max_tokens: int) -> List[Chunk]:
    """Cut time into steps of at least ROWS_ALONE rows, and between them into chunks of
    at most `max_tokens` tokens, or of one step.
    """
    chunks: List[List[Tuple[int, int]]] = []
    n_tokens = max_tokens
    for lo, hi in packed_steps(sizes):
        n = hi - lo
        n_tokens += n
        if n_tokens > max_tokens or n >= ROWS_ALONE:
            chunks.append([])
            n_tokens = n if n < ROWS_ALONE else max_tokens
        chunks[-1].append((lo, hi))
    return [Chunk(steps[0][0], steps[-1][1], steps) for steps in chunks]


def _rounded(n: int) -> int:
    return -(-n // ROWS) * ROWS
