from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from .lstm_grad import lstm_train
from .lstm_predict import Moves, predict_bfloat16, predict_float32, predict_repeated
from .options import LSTMOptions

PADDING = 64  # of a row of weights, in numbers
# Inputs that are read so many times each, in the mean, have their products made
# beforehand. They take 16 bytes an input and unit of the cell: at the original size
# 270 MB for a batch of 8192 tokens at the most, and half of that for running text.
LEAST_READINGS = 2


class LSTMState(NamedTuple):
    """The carried state of one layer and direction, a row a sentence: `h`
    (n_rows, projection) after the clip and without the residual, `c` (n_rows, dim).
    """

    h: Tensor
    c: Tensor


class LSTMLayer(nn.Module):
    """One direction of one LSTM layer with projection (Sak et al. 2014) and clips.

        i, j, f, o = [x_t; h_{t-1}] W + b
        c_t = clip(sigmoid(f + 1) c_{t-1} + sigmoid(i) tanh(j))
        h_t = clip((sigmoid(o) tanh(c_t)) W_P)

    Sequences come packed: time step after time step, and within a step the rows in
    falling order of their length, so that the rows alive at step t are the first
    `batch_sizes[t]`. There is no padding.

    options (LSTMOptions): The geometry.
    """

    def __init__(self, options: LSTMOptions):
        super().__init__()
        H, P = options.dim, options.projection_dim
        self.options = options
        # Columns are the gates i, f, o, j: the three sigmoids lie side by side. The
        # bias is stored without the +1 of the forget gate, as in the official files.
        self.weight = nn.Parameter(torch.empty(P + P, 4 * H))
        self.bias = nn.Parameter(torch.empty(4 * H))
        self.projection = (
            nn.Parameter(torch.empty(H, P)) if options.has_projection else None
        )
        # What prediction multiplies by instead, if it runs in bfloat16.
        self.low_precision: Optional[Tuple[Tensor, Optional[Tensor]]] = None

    def pad_rows(self) -> None:
        """Give the weight memory of its own, for a model whose values are to be read
        after this: its rows begin four cache lines further apart, and there is a row
        before them for the bias.

        At a power of two, the elements of a column fall into the same few sets of a
        processor's cache: on huge pages the recurrent product then takes twice as
        long, on others a tenth longer.
        """
        n_rows, n = self.weight.shape
        block = self.weight.new_empty(1 + n_rows, n + PADDING)
        self.weight = nn.Parameter(block[1:, :n])

    def joined_weight(self) -> Tensor:
        """[bias; W], shape (1 + 2 * projection, 4 * dim): with a 1 before each input,
        the bias comes with the product. The forget gate has its +1.
        """
        weight, bias = self.weight.detach(), self.gate_bias()
        stride = weight.stride(0)
        if weight.storage_offset() < stride:
            return torch.cat([bias[None], weight])
        # The row before the weight is free: see `pad_rows`.
        n_rows, n_gates = weight.shape
        start = weight.storage_offset() - stride
        block = weight.as_strided((1 + n_rows, n_gates), (stride, 1), start)
        block[0] = bias
        return block

    def use_bfloat16(self) -> None:
        """Predict with matrix products in bfloat16. State, gates and sums stay in
        float32.
        """
        projection = self.projection
        self.low_precision = (
            # Column by column: a fifth faster at the original size.
            self.weight.detach().bfloat16().t().contiguous().t(),
            None if projection is None else projection.detach().bfloat16(),
        )

    def _apply(self, fn: Any, recurse: bool = True) -> "LSTMLayer":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.low_precision is not None:
            self.use_bfloat16()  # made of the weights, and goes where they go
        return self

    def gate_bias(self) -> Tensor:
        """The bias with the forget gate's +1, shape (4 * dim,)."""
        H = self.options.dim
        bias = self.bias.detach().clone()
        bias[H : 2 * H] += 1.0
        return bias

    def initial_state(self, n_rows: int) -> LSTMState:
        new = self.bias.new_zeros
        return LSTMState(
            new(n_rows, self.options.projection_dim), new(n_rows, self.options.dim)
        )

    def forward(
        self,
        x: Tensor,
        batch_sizes: Sequence[int],
        state: Optional[LSTMState] = None,
        *,
        index: Optional[Tensor] = None,
        moves: Optional[Moves] = None,
        keep: Optional[Tensor] = None,
    ) -> Tuple[Tensor, LSTMState]:
        """Run the layer over packed sequences.

        x (Floats2d): Packed inputs, shape (n_tokens, projection); or those that
            `index` chooses from.
        batch_sizes (Sequence[int]): Rows alive at each time step, falling unless rows
            move.
        state (LSTMState): The state before the first step; zeros if None.
        index (Ints1d): The row of x that each token reads, shape (n_tokens,).
        moves (Moves): Copies of rows of the state before each step, and after the
            last: see Reading. Only for prediction.
        keep (Floats2d): Shape (n_tokens, 1): 0 where a token starts from the zero
            state, else 1. Only for training on contiguous rows.
        RETURNS (Tuple[Floats2d, LSTMState]): Outputs, packed as x, and the state of
            each row after its last step.
        """
        if state is None:
            state = self.initial_state(batch_sizes[0] if batch_sizes else 0)
        trains = torch.is_grad_enabled() and (
            self.weight.requires_grad or x.requires_grad
        )
        if index is not None and (
            trains
            or self.low_precision is not None
            or len(x) * LEAST_READINGS > len(index)
        ):
            x, index = x[index], None
        if trains:
            assert not moves, "in training, no rows are shared"
            return self._forward_train(x, batch_sizes, state, keep)
        assert keep is None, "contiguous rows are for training"
        return self._forward_predict(x, batch_sizes, state, index, moves)

    def _forward_train(
        self,
        x: Tensor,
        batch_sizes: Sequence[int],
        state: LSTMState,
        keep: Optional[Tensor],
    ) -> Tuple[Tensor, LSTMState]:
        y, h, c = lstm_train(
            x, state.h, state.c, self.weight, self.bias, self.projection,
            batch_sizes, keep, self.options.cell_clip, self.options.proj_clip,
        )  # fmt: skip
        return y, LSTMState(h, c)

    def _forward_predict(
        self,
        x: Tensor,
        batch_sizes: Sequence[int],
        state: LSTMState,
        index: Optional[Tensor],
        moves: Optional[Moves],
    ) -> Tuple[Tensor, LSTMState]:
        h, c = state.h.clone(), state.c.clone()
        rest = batch_sizes, moves, self.options.cell_clip, self.options.proj_clip
        if self.low_precision is not None:
            weight, projection = self.low_precision
            bias = self.gate_bias()
            y = predict_bfloat16(x, h, c, weight, bias, projection, *rest)
            return y, LSTMState(h, c)
        weight = self.joined_weight()
        if index is not None:
            y = predict_repeated(x, index, h, c, weight, self.projection, *rest)
        else:
            y = predict_float32(x, h, c, weight, self.projection, *rest)
        return y, LSTMState(h, c)
