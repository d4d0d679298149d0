"""The LSTM layer in prediction: gates in place, nothing kept for a backward pass. All
precisions share the loop over time; each has an `Arithmetic` for its products.
"""

import warnings
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor
from torch.nn import functional as F

from ..processes import LOCK
from .batching import Move, Moves
from .kernels import Weight, multiply, pack
from .precision import INT8_PRODUCT
from .tuning import CHUNK_TOKENS, LEAST_READINGS, ROW_MULTIPLE

# Given a step and its h_{t-1} (n, projection), the gates before their activations:
# (4, n, dim).
Gates = Callable[[int, Tensor], Tensor]
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

    state (Tuple[Floats2d, Floats2d]): h and c, changed in place.
    clips (Tuple[float, float]): Of the cells and of the outputs.
    RETURNS (Floats2d): Outputs, packed as x.
    """
    (h, c), (cell_clip, proj_clip) = state, clips
    y = x.new_empty(sum(sizes), h.shape[1])
    gates = arithmetic.gates(x, index, sizes)
    for t, y_t in enumerate(y.split(list(sizes))):
        n = len(y_t)
        if moves:
            _move(moves[t], h, c)
        m = _cell(gates(t, h[:n]), c[:n], cell_clip)
        if arithmetic.projection is not None:
            m = arithmetic.project(m)
        h[:n] = torch.clamp(m, -proj_clip, proj_clip, out=y_t)
    if moves:
        _move(moves[-1], h, c)
    return y


class Float32:
    """Exact products: of the state at each step, of the inputs for many steps at once.

    kernel (Floats2d): [b; W], see LSTMLayer.
    projection (Floats2d): W_P, or None.
    trained (bool): Whether the weights may change. Then no copy is made in another
        layout: it would not see the updates of an optimizer.
    """

    def __init__(self, kernel: Tensor, projection: Optional[Tensor], trained: bool):
        make = Weight if trained else pack
        self.bias = kernel[0]
        self.w_input, self.w_state = map(make, kernel[1:].split(len(kernel) // 2))
        self.projection = None if projection is None else make(projection)

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        inputs = self._inputs(x, index, sizes)
        w = _by_gate(self.w_state.dense)

        def gates(t: int, h: Tensor) -> Tensor:
            if self.w_state.packed is not None or len(h) == 1:
                return _by_gate(multiply(h, self.w_state, next(inputs)))
            # One product for each gate: threads divide them, and each gate is
            # contiguous for its pointwise operations.
            return torch.baddbmm(_by_gate(next(inputs)), h.expand(4, -1, -1), w)

        return gates

    def _inputs(
        self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]
    ) -> Iterator[Tensor]:
        """The products of the inputs of each step, and the bias."""
        bias = _with_forget_bias(self.bias)
        if index is not None and len(x) * LEAST_READINGS <= len(index):
            of_words = multiply(x, self.w_input, bias)
            for words in index.split(list(sizes)):
                yield of_words.index_select(0, words)
            return
        chunks = list(_step_chunks(sizes))
        xs = _chosen(x, index).split([sum(chunk) for chunk in chunks])
        for chunk, x_chunk in zip(chunks, xs):
            yield from multiply(x_chunk, self.w_input, bias).split(chunk)

    def project(self, m: Tensor) -> Tensor:
        assert self.projection is not None
        return multiply(m, self.projection)


class BFloat16:
    """Products in bfloat16; state, gates, sums in float32. Arguments as in Float32."""

    def __init__(self, kernel: Tensor, projection: Optional[Tensor]):
        self.bias = _with_forget_bias(kernel[0])
        # Column by column: a fifth faster at the original size.
        self.weight = kernel[1:].bfloat16().t().contiguous().t()
        self.projection = None if projection is None else projection.bfloat16()

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        xs = _chosen(x.bfloat16(), index).split(list(sizes))
        buffer = x.new_empty(max(sizes) * len(self.bias))
        bias = self.bias.view(4, 1, -1)

        def gates(t: int, h: Tensor) -> Tensor:
            g = _product(torch.cat((xs[t], h.bfloat16()), 1), self.weight)
            # Each gate is contiguous for its pointwise operations.
            out = buffer[: g.numel()].view(4, len(h), -1)
            return out.copy_(_by_gate(g)).add_(bias)

        return gates

    def project(self, m: Tensor) -> Tensor:
        assert self.projection is not None
        return _product(m.bfloat16(), self.projection).float()


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """The product of rows in bfloat16; many are padded, see ROW_MULTIPLE."""
    n_padding = -len(x) % ROW_MULTIPLE if len(x) > ROW_MULTIPLE else 0
    return (F.pad(x, (0, 0, 0, n_padding)) @ weight)[: len(x)]


class Int8:
    """Products of inputs and weights that are rounded to whole numbers. State, gates
    and sums stay in float32. Arguments as in Float32. A float32 product, which would be
    faster for a small projection, differs in its last bit from batch to batch, and
    rounding would make that larger.
    """

    def __init__(self, kernel: Tensor, projection: Optional[Tensor]):
        self.bias = _with_forget_bias(kernel[0])
        self.weight = _pack_int8(kernel[1:])
        self.projection = None if projection is None else _pack_int8(projection)

    def gates(self, x: Tensor, index: Optional[Tensor], sizes: Sequence[int]) -> Gates:
        xs = _chosen(x, index).split(list(sizes))

        def gates(t: int, h: Tensor) -> Tensor:
            g, scale = _int8_product(torch.cat((xs[t], h), 1), self.weight)
            return _by_gate(torch.addcmul(self.bias, g, scale, out=g))

        return gates

    def project(self, m: Tensor) -> Tensor:
        y, scale = _int8_product(m, self.projection)
        return y.mul_(scale)


def _int8_product(x: Tensor, weight: Any) -> Tuple[Tensor, Tensor]:
    """The product of x, which is overwritten, and a matrix that `_pack_int8` made, over
    a scale for each row of x: a sentence's vectors do not depend on its neighbors in
    the batch.
    """
    scale = x.abs().amax(1, True).clamp_(min=SMALLEST)
    product: Callable[..., Tensor] = getattr(torch.ops.quantized, INT8_PRODUCT)
    return product(x.div_(scale), 1 / 127, 128, weight), scale


def _pack_int8(weight: Tensor) -> Any:
    """Round each column of a weight (n_in, n_out) to whole numbers of -63 to 63. With
    more, sums of two products overflow on processors without VNNI.
    """
    weight = weight.t().contiguous()
    scale = weight.abs().amax(1).clamp_(min=SMALLEST).div_(63)
    zero = torch.zeros(len(scale), dtype=torch.int64)
    with LOCK, warnings.catch_warnings():  # the engine, too, is the process's
        # Tensors of this kind will go from PyTorch one day: see `has_int8`.
        warnings.simplefilter("ignore")
        engine = torch.backends.quantized.engine
        torch.backends.quantized.engine = "fbgemm"
        try:
            rounded = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(rounded, None)
        finally:
            torch.backends.quantized.engine = engine


def _chosen(x: Tensor, index: Optional[Tensor]) -> Tensor:
    # index_select, here and below: x[index] takes two to three times as long.
    return x if index is None else x.index_select(0, index)


def _move(copies: Sequence[Move], h: Tensor, c: Tensor) -> None:
    """Copy rows of the state, in place."""
    for start, sources in copies:
        rows = torch.from_numpy(sources).to(h.device)
        for part in (h, c):
            part[start : start + len(rows)] = part.index_select(0, rows)


def _with_forget_bias(bias: Tensor) -> Tensor:
    """b plus the 1 of the forget gate, which is not stored."""
    gates = bias.view(4, -1).clone()
    gates[1] += 1.0  # of i, f, o, j
    return gates.view(-1)


def _by_gate(g: Tensor) -> Tensor:
    """Columns of the four gates side by side, (n, 4 * dim), as (4, n, dim)."""
    return g.view(len(g), 4, -1).transpose(0, 1)


def _cell(gates: Tensor, c: Tensor, clip: float) -> Tensor:
    """The pointwise part of one step, which overwrites the gates (4, n, dim) and the
    cells c (n, dim). tanh(x) is 2 sigmoid(2x) - 1 here: on an AMD processor, torch.tanh
    takes ten times as long as torch.sigmoid. And 2x is x + x: of a factor torch makes a
    tensor first, which takes a fifth of the time for one row.

    RETURNS (Floats2d): sigmoid(o) tanh(c_t), shape (n, dim).
    """
    i, f, o, j = gates.unbind()
    j.add_(j)
    gates.sigmoid_()
    # f c + i (2 j - 1), and then o (2 m - 1)
    c.mul_(f).sub_(i).addcmul_(i, j, value=2).clamp_(-clip, clip)
    m = torch.add(c, c, out=f).sigmoid_()
    return torch.neg(o, out=i).addcmul_(o, m, value=2)


def _step_chunks(sizes: Sequence[int]) -> Iterator[List[int]]:
    """Steps that follow one another, of at most CHUNK_TOKENS tokens or one step."""
    chunk: List[int] = []
    for n in sizes:
        if chunk and sum(chunk) + n > CHUNK_TOKENS:
            yield chunk
            chunk = []
        chunk.append(n)
    yield chunk


Arithmetic = Union[Float32, BFloat16, Int8]
