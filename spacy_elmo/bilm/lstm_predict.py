"""The LSTM layer in prediction: gates in place, nothing kept for a backward pass. All
precisions share the loop over time; each has an `Arithmetic` for its products.
"""

import warnings
from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

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


def predict(
    arithmetic: "Arithmetic",
    x: Tensor,
    index: Optional[Tensor],
    state: Tuple[Tensor, Tensor],
    sizes: Sequence[int],
    moves: Optional[Moves],
    clips: Tuple[float, float],
) -> Tensor:
    """Run one layer over packed sequences. Arguments as in LSTMLayer.

    arithmetic (Arithmetic): Of the layer.
    state (Tuple[Floats2d, Floats2d]): h and c, changed in place.
    clips (Tuple[float, float]): Of the cells and of the outputs.
    RETURNS (Floats2d): Outputs, packed in time.
    """
    (h, c), (cell_clip, proj_clip) = state, clips
    y = x.new_empty(sum(sizes), h.shape[1])
    gates = arithmetic.gates(x, index, sizes)
    for t, (start, end) in enumerate(packed_steps(sizes)):
        n, y_t = end - start, y[start:end]
        if moves:
            _move(moves[t], h, c)
        m = _cell(gates(start, end, h[:n]), c[:n], cell_clip)
        if arithmetic.projection is None:
            y_t.copy_(m)
        else:
            arithmetic.project(m, y_t)
        h[:n] = y_t.clamp_(-proj_clip, proj_clip)
    if moves:
        _move(moves[-1], h, c)
    return y


class Float32:
    """Exact products: of whole steps, or of the inputs of many steps at once.

    kernel (Floats2d): [b; W], see LSTMLayer.
    projection (Floats2d): W_P, or None.
    """

    def __init__(self, kernel: Tensor, projection: Optional[Tensor]):
        n_inputs = (len(kernel) - 1) // 2
        self.bias, self.w_input = kernel[0], kernel[1 : 1 + n_inputs]
        self.w_state = kernel[1 + n_inputs :]
        self.kernel = kernel
        self.projection = projection

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        if index is not None and len(x) * LEAST_READINGS <= len(index):
            return self._gates_of_repeated(x, index, sizes)
        return self._gates_by_step(x if index is None else x[index], sizes)

    def _gates_by_step(self, x: Tensor, sizes: Sequence[int]) -> Gates:
        n_gates, width = self.kernel.shape[1], x.shape[1]
        chunk_ends = _chunk_ends(sizes)
        buffer = x.new_empty(min(len(x), max([CHUNK_TOKENS, *sizes])) * n_gates)
        xh = x.new_ones(max(sizes), len(self.kernel))  # [1; x_t; h_{t-1}]
        chunk, inputs = 0, buffer

        def gates(start: int, end: int, h: Tensor) -> Tensor:
            nonlocal chunk, inputs
            n = end - start
            if n >= ROWS_ALONE:
                xh[:n, 1 : 1 + width] = x[start:end]
                xh[:n, 1 + width :] = h
                # One product for each gate: threads divide them, and each gate is
                # contiguous for its pointwise operations.
                out = buffer[: n * n_gates].view(4, n, -1)
                return torch.bmm(
                    xh[:n].expand(4, -1, -1), _by_gate(self.kernel), out=out
                )
            if start in chunk_ends:
                chunk, chunk_end = start, chunk_ends[start]
                inputs = buffer[: (chunk_end - chunk) * n_gates].view(-1, n_gates)
                torch.addmm(self.bias, x[chunk:chunk_end], self.w_input, out=inputs)
            g = inputs[start - chunk : end - chunk]
            return _by_gate(g.addmm_(h, self.w_state))

        return gates

    def _gates_of_repeated(
        self, x: Tensor, index: Tensor, sizes: Sequence[int]
    ) -> Gates:
        """Products of the distinct inputs are computed once, those of the state at
        each step.
        """
        x1, n_gates = F.pad(x, (1, 0), value=1.0), self.kernel.shape[1]
        w_input, w_state = self.kernel[: x1.shape[1]], _by_gate(self.w_state)
        inputs = torch.bmm(x1.expand(4, -1, -1), _by_gate(w_input))
        buffer = x.new_empty(max(sizes) * n_gates)

        def gates(start: int, end: int, h: Tensor) -> Tensor:
            n = end - start
            found = buffer[: n * n_gates].view(4, n, -1)
            for gate, of_words in zip(found, inputs):
                torch.index_select(of_words, 0, index[start:end], out=gate)
            return found.baddbmm_(h.expand(4, -1, -1), w_state)

        return gates

    def project(self, m: Tensor, y: Tensor) -> None:
        assert self.projection is not None
        torch.mm(m, self.projection, out=y)


class Rounded:
    """Products of rounded numbers. State, gates and sums stay in float32.

    dtype (torch.dtype): Of the rows that are multiplied.
    pack (Callable): Rounds a matrix (n_in, n_out).
    product (Callable): The product in float32 of the first n of some rows, which it
        may overwrite, and a matrix that `pack` made. Rows of another dtype than
        float32 are padded with zeros to a multiple of ROW_MULTIPLE.
    """

    def __init__(
        self, dtype: torch.dtype, pack: Callable[[Tensor], Any],
        product: Callable[[Tensor, int, Any], Tensor], kernel: Tensor,
        projection: Optional[Tensor],
    ):  # fmt: skip
        self.dtype, self.product = dtype, product
        self.bias, self.weight = kernel[0], pack(kernel[1:])
        self.projection = None if projection is None else pack(projection)

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        width = x.shape[1]
        xh = self._rows(max(sizes), 2 * width)  # [x_t; h_{t-1}]

        def gates(start: int, end: int, h: Tensor) -> Tensor:
            n = end - start
            xh[:n, :width] = x[start:end] if index is None else x[index[start:end]]
            xh[:n, width:] = h
            return _by_gate(self.product(xh, n, self.weight).add_(self.bias))

        return gates

    def project(self, m: Tensor, y: Tensor) -> None:
        rows = m
        if self.dtype != m.dtype:
            rows = self._rows(*m.shape)
            rows[: len(m)] = m
        y.copy_(self.product(rows, len(m), self.projection))

    def _rows(self, n: int, width: int) -> Tensor:
        return self.bias.new_zeros(_rounded(n), width, dtype=self.dtype)


def _pack_bfloat16(weight: Tensor) -> Tensor:
    # Column by column: a fifth faster at the original size.
    return weight.bfloat16().t().contiguous().t()


def _bfloat16_product(rows: Tensor, n: int, weight: Tensor) -> Tensor:
    return (rows[: _rounded(n)] @ weight)[:n].float()


def _int8_product(rows: Tensor, n: int, weight: Any) -> Tensor:
    """Each column of a matrix has a scale, and so has each row of inputs: a sentence's
    vectors do not depend on its neighbors in the batch.
    """
    x = rows[:n]
    scale = x.abs().amax(1, True).clamp_(min=SMALLEST).div_(127)
    # Rounds x, and applies the scales of the columns.
    product: Callable[..., Tensor] = getattr(torch.ops.quantized, INT8_PRODUCT)
    return product(x.div_(scale), 1.0, 128, weight).mul_(scale)


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
    return g.view(len(g), 4, -1).transpose(0, 1)


def _cell(gates: Tensor, c: Tensor, clip: float) -> Tensor:
    """The pointwise part of one step, which overwrites the gates (4, n, dim) and the
    cells c (n, dim).

    RETURNS (Floats2d): sigmoid(o) tanh(c_t), shape (n, dim).
    """
    i, f, o, j = gates
    f.add_(1.0)
    gates[:3].sigmoid_()
    c.mul_(f).addcmul_(i, j.tanh_()).clamp_(-clip, clip)
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


Arithmetic = Union[Float32, Rounded]
ARITHMETICS: Dict[str, Callable[[Tensor, Optional[Tensor]], Arithmetic]] = {
    "float32": Float32,
    "bfloat16": partial(Rounded, torch.bfloat16, _pack_bfloat16, _bfloat16_product),
    "int8": partial(Rounded, torch.float32, _pack_int8, _int8_product),
}
