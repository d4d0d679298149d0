"""The LSTM layer in prediction: gates in place, nothing kept for a backward pass. The
loop over time is one; how products are computed is an `Arithmetic` for each precision.
"""

import warnings
from typing import Any, Callable, Dict, Optional, Protocol, Sequence, Tuple, Type

import torch
from torch import Tensor
from torch.nn import functional as F

from .batching import packed_steps
from .precision import INT8_PRODUCT
from .tuning import CHUNK_TOKENS, LEAST_READINGS, ROW_MULTIPLE, ROWS_ALONE

# Copies of rows of the state before each step, and after the last: see Reading.
Moves = Sequence[Sequence[Tuple[int, Tensor]]]
# Given where a step's tokens start and end and its h_{t-1} (n, projection), the gates
# before their activations, without the forget gate's +1: (4, n, dim).
Gates = Callable[[int, int, Tensor], Tensor]


# A scale is never zero.
SMALLEST = 1e-30


class Arithmetic(Protocol):
    """The products of one layer in one precision, made of [b; W] and W_P."""

    def __init__(self, kernel: Tensor, projection: Optional[Tensor]) -> None: ...

    def gates(
        self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]
    ) -> Gates: ...

    def project(self, m: Tensor, y: Tensor) -> None:
        """Write m W_P to y (n, projection), given m (n, dim)."""


def predict(
    arithmetic: Arithmetic,
    x: Tensor,
    index: Optional[Tensor],
    h: Tensor,
    c: Tensor,
    sizes: Sequence[int],
    moves: Optional[Moves],
    clips: Tuple[Optional[float], Optional[float]],
) -> Tensor:
    """Run one layer over packed sequences. Arguments as in LSTMLayer.

    arithmetic (Arithmetic): Of the layer.
    h, c (Floats2d): The state, changed in place.
    clips (Tuple[float, float]): Of the cells and of the outputs, or None.
    RETURNS (Floats2d): Outputs, packed in time.
    """
    cell_clip, proj_clip = clips
    y = x.new_empty(sum(sizes), h.shape[1])
    gates = arithmetic.gates(x, index, sizes)
    for t, (start, end) in enumerate(packed_steps(sizes)):
        n, y_t = end - start, y[start:end]
        if moves:
            _move(moves[t], h, c)
        m = _cell(gates(start, end, h[:n]), c[:n], cell_clip)
        arithmetic.project(m, y_t)
        if proj_clip is not None:
            y_t.clamp_(-proj_clip, proj_clip)
        h[:n] = y_t
    if moves:
        _move(moves[-1], h, c)
    return y


class Float32:
    def __init__(self, kernel: Tensor, projection: Optional[Tensor]):
        n_inputs = (len(kernel) - 1) // 2
        self.bias, self.w_input = kernel[0], kernel[1 : 1 + n_inputs]
        self.w_state = kernel[1 + n_inputs :]
        self.kernel = kernel
        self.projection = projection

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        if index is None:
            return self._gates_by_step(x, sizes)
        if len(x) * LEAST_READINGS > len(index):
            return self._gates_by_step(x[index], sizes)
        return self._gates_of_repeated(x, index, sizes)

    def _gates_by_step(self, x: Tensor, sizes: Sequence[int]) -> Gates:
        n_gates, width = self.kernel.shape[1], x.shape[1]
        chunk_ends = _chunk_ends(sizes)
        tokens = max([*sizes, *(end - i for i, end in chunk_ends.items())], default=0)
        buffer = x.new_empty(tokens * n_gates)
        xh = x.new_ones(max(sizes, default=0), len(self.kernel))  # [1; x_t; h_{t-1}]
        chunk, inputs = 0, buffer

        def gates(start: int, end: int, h: Tensor) -> Tensor:
            nonlocal chunk, inputs
            n = end - start
            if n >= ROWS_ALONE:
                xh[:n, 1 : 1 + width] = x[start:end]
                xh[:n, 1 + width :] = h
                # A product a gate: threads share them out, and what a gate's
                # pointwise operations read lies in one piece.
                out = _rows(buffer, n, n_gates).view(4, n, -1)
                return torch.bmm(
                    xh[:n].expand(4, -1, -1), _by_gate(self.kernel), out=out
                )
            if start in chunk_ends:
                chunk, chunk_end = start, chunk_ends[start]
                inputs = _rows(buffer, chunk_end - chunk, n_gates)
                torch.addmm(self.bias, x[chunk:chunk_end], self.w_input, out=inputs)
            g = inputs[start - chunk : end - chunk]
            return _by_gate(g.addmm_(h, self.w_state))

        return gates

    def _gates_of_repeated(
        self, x: Tensor, index: Tensor, sizes: Sequence[int]
    ) -> Gates:
        """Products of the distinct inputs are computed once for all steps, and only
        those of the state at each step.
        """
        x1, n_gates = F.pad(x, (1, 0), value=1.0), self.kernel.shape[1]
        w_input, w_state = self.kernel[: x1.shape[1]], _by_gate(self.w_state)
        inputs = torch.bmm(x1.expand(4, -1, -1), _by_gate(w_input))
        buffer = x.new_empty(max(sizes) * n_gates)

        def gates(start: int, end: int, h: Tensor) -> Tensor:
            n = end - start
            found = _rows(buffer, n, n_gates).view(4, n, -1)
            for gate, of_words in zip(found, inputs):
                torch.index_select(of_words, 0, index[start:end], out=gate)
            return found.baddbmm_(h.expand(4, -1, -1), w_state)

        return gates

    def project(self, m: Tensor, y: Tensor) -> None:
        if self.projection is None:
            y.copy_(m)
        else:
            torch.mm(m, self.projection, out=y)


class Int8:
    """Each column of a matrix has a scale, and so has each row of inputs: a sentence's
    vectors do not depend on its neighbors in the batch. State and gates stay in
    float32.
    """

    def __init__(self, kernel: Tensor, projection: Optional[Tensor]):
        self.bias, self.weight = kernel[0], _pack_int8(kernel[1:])
        self.projection = None if projection is None else _pack_int8(projection)

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        width = x.shape[1]
        xh = x.new_empty(max(sizes, default=0), 2 * width)  # [x_t; h_{t-1}]

        def gates(start: int, end: int, h: Tensor) -> Tensor:
            rows = xh[: end - start]
            rows[:, :width] = x[start:end] if index is None else x[index[start:end]]
            rows[:, width:] = h
            out, scale = _int8_product(rows, self.weight)
            return _by_gate(torch.addcmul(self.bias, out, scale, out=out))

        return gates

    def project(self, m: Tensor, y: Tensor) -> None:
        if self.projection is None:
            y.copy_(m)
        else:
            torch.mul(*_int8_product(m, self.projection), out=y)


class BFloat16:
    """State, gates and sums stay in float32."""

    def __init__(self, kernel: Tensor, projection: Optional[Tensor]):
        self.bias = kernel[0].view(4, 1, -1)
        # Column by column: a fifth faster at the original size.
        self.weight = kernel[1:].bfloat16().t().contiguous().t()
        self.projection = None if projection is None else projection.bfloat16()

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        x, width, n_gates = x.bfloat16(), x.shape[1], self.weight.shape[1]
        n_rows = _rounded(max(sizes, default=0))
        xh = self.weight.new_zeros(n_rows, len(self.weight))
        buffer = self.bias.new_empty(n_rows * n_gates)

        def gates(start: int, end: int, h: Tensor) -> Tensor:
            n = end - start
            xh[:n, :width] = x[start:end] if index is None else x[index[start:end]]
            xh[:n, width:] = h
            found = _rows(buffer, n, n_gates).view(4, n, -1)
            product = (xh[: _rounded(n)] @ self.weight)[:n]
            return found.copy_(_by_gate(product)).add_(self.bias)

        return gates

    def project(self, m: Tensor, y: Tensor) -> None:
        if self.projection is None:
            y.copy_(m)
            return
        rows = m.new_zeros(_rounded(len(m)), m.shape[1], dtype=torch.bfloat16)
        rows[: len(m)] = m
        y.copy_((rows @ self.projection)[: len(m)])


ARITHMETICS: Dict[str, Type[Arithmetic]] = {
    "float32": Float32,
    "bfloat16": BFloat16,
    "int8": Int8,
}


def _int8_product(x: Tensor, weight: Any) -> Tuple[Tensor, Tensor]:
    """Multiply x (n, n_in), which is overwritten, by a packed weight.

    RETURNS (Tuple[Floats2d, Floats2d]): The product in float32, without the scale of
        each row, and those scales (n, 1).
    """
    scale = x.abs().amax(1, True).clamp_(min=SMALLEST).div_(127)
    # Rounds x, and applies the scales of the columns.
    product = getattr(torch.ops.quantized, INT8_PRODUCT)
    return product(x.div_(scale), 1.0, 128, weight), scale


def _pack_int8(weight: Tensor) -> Any:
    """Round each column of a weight (n_in, n_out) to whole numbers of -63 to 63. With
    more, sums of two products overflow on processors without VNNI.
    """
    weight = weight.t().contiguous()
    scale = weight.abs().amax(1).clamp_(min=SMALLEST).div_(63)
    zero = torch.zeros(len(scale), dtype=torch.int64)
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        with warnings.catch_warnings():
            # Tensors of this kind will go from PyTorch one day: see `has_int8`.
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(rounded, None)
    finally:
        torch.backends.quantized.engine = engine


def _move(copies: Sequence[Tuple[int, Tensor]], h: Tensor, c: Tensor) -> None:
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
    i, f, o, j = gates
    f.add_(1.0)
    gates[:3].sigmoid_()
    c.mul_(f).addcmul_(i, j.tanh_())
    if clip is not None:
        c.clamp_(-clip, clip)
    return torch.mul(torch.tanh(c), o, out=i)


def _chunk_ends(sizes: Sequence[int]) -> Dict[int, int]:
    """Chunks of steps of fewer than ROWS_ALONE rows that follow one another, of at
    most CHUNK_TOKENS tokens or one step: the end of each by its start.
    """
    ends: Dict[int, int] = {}
    start = previous = -1
    for lo, hi in packed_steps(sizes):
        if hi - lo >= ROWS_ALONE:
            continue
        if lo != previous or hi - start > CHUNK_TOKENS:
            start = lo
        ends[start] = previous = hi
    return ends


def _rounded(n: int) -> int:
    return -(-n // ROW_MULTIPLE) * ROW_MULTIPLE
