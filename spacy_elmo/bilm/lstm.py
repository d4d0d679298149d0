import math
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from .batching import Moves
from .kernels import casting, no_autocast
from .lstm_grad import TrainedLSTM
from .lstm_predict import Arithmetic, BFloat16, Float32, Int8, predict
from .options import LSTMOptions
from .tuning import ALIASED, KERNEL_PADDING


class LSTMState(NamedTuple):
    """The carried state of one layer and direction, one row per sentence: `h`
    (n_rows, projection) after the clip and without the residual, `c` (n_rows, dim).
    That of a biLM has two axes in front, (2, L): direction 0 is forward, 1 backward.
    """

    h: Tensor
    c: Tensor


def stack_states(states: Sequence[LSTMState]) -> LSTMState:
    """The state of several layers or directions, along a new axis in front."""
    return LSTMState(*map(torch.stack, zip(*states)))


class LSTMLayer(nn.Module):
    """One direction of one LSTM layer with projection (Sak et al. 2014) and clips.

        i, f, o, j = [x_t; h_{t-1}] W + b
        c_t = clip(sigmoid(f + 1) c_{t-1} + sigmoid(i) tanh(j))
        h_t = clip((sigmoid(o) tanh(c_t)) W_P)

    Sequences come packed: time step after time step, and within a step the rows in
    falling order of their length, so that the rows alive at step t are the first
    `batch_sizes[t]`. There is no padding of sequences. The loops over t are in
    lstm_predict.py and, with their gradients, in lstm_grad.py.
    """

    def __init__(self, options: LSTMOptions):
        super().__init__()
        H, P = options.dim, options.projection_dim
        self.options = options
        # [b; W], shape (1 + 2 * projection, 4 * dim + padding): with a 1 before each
        # input, the bias comes with the product. Columns are the gates i, f, o, j:
        # the three sigmoids lie side by side. The bias is stored without the +1 of
        # the forget gate, as in the official files. Padding is zeros.
        padding = 0 if 4 * H % ALIASED else KERNEL_PADDING
        self.kernel = nn.Parameter(torch.zeros(1 + P + P, 4 * H + padding))
        self.projection = nn.Parameter(torch.empty(H, P)) if P != H else None
        # Without a projection, bilm-tf does not apply proj_clip.
        proj_clip = options.proj_clip if P != H else None
        self._clips = options.cell_clip or math.inf, proj_clip or math.inf
        self.precision = "float32"
        # Weights in this precision, and what they were made of.
        self._made: Optional[Tuple[object, Arithmetic]] = None

    @property
    def weight(self) -> Tensor:
        """W, shape (2 * projection, 4 * dim): rows of x, then of h. A view."""
        return self.kernel[1:, : 4 * self.options.dim]

    @property
    def bias(self) -> Tensor:
        """b, shape (4 * dim,). A view."""
        return self.kernel[0, : 4 * self.options.dim]

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
            state, else 1. Only for training on rows of running text.
        RETURNS (Tuple[Floats2d, LSTMState]): Outputs, packed as x, and the state of
            each row after its last step.
        """
        if state is None:
            P, H, n = self.options.projection_dim, self.options.dim, batch_sizes[0]
            state = LSTMState(x.new_zeros(n, P), x.new_zeros(n, H))
        clips = self._clips
        if torch.is_grad_enabled() and (self.kernel.requires_grad or x.requires_grad):
            assert not moves, "in training, no rows are shared"
            if index is not None:
                x = x.index_select(0, index)
            with casting(self.kernel) as dtype:
                how = tuple(batch_sizes), keep, clips, dtype
                y, *last = TrainedLSTM.apply(  # type: ignore[no-untyped-call]
                    x, *state, self.kernel, self.projection, how
                )
            return y, LSTMState(*last)
        assert keep is None, "`keep` is for training"
        state = LSTMState(state.h.clone(), state.c.clone())
        with no_autocast(self.kernel):
            y = predict(self._arithmetic(), x, index, state, batch_sizes, moves, clips)
        return y, state

    def _arithmetic(self) -> Arithmetic:
        """The products of this layer in its precision."""
        trained = self.kernel.requires_grad
        made_of = self.precision, trained, *map(_stamp, self.parameters())
        if self._made is None or self._made[0] != made_of:
            kernel = self.kernel.detach()[:, : 4 * self.options.dim]
            projection = None if self.projection is None else self.projection.detach()
            if self.precision == "float32":
                made: Arithmetic = Float32(kernel, projection, trained)
            else:
                low = BFloat16 if self.precision == "bfloat16" else Int8
                made = low(kernel, projection)
            self._made = made_of, made
        return self._made[1]

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_made": None}  # made again where it is needed


def _stamp(param: Tensor) -> Tuple[torch.device, int, object]:
    """Changes when a parameter is moved, replaced or written to (not by `data`). That
    of an inference tensor, which counts no writes, is never the same twice.
    """
    version = object() if param.is_inference() else param._version
    return param.device, param.data_ptr(), version
