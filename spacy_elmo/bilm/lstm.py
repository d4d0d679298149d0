from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from .lstm_grad import lstm_train
from .options import LSTMOptions
from .packing import packed_steps

# The input products of a chunk of time steps are one matrix product; this many
# tokens bound its size (64 MB at 4 * 4096 gates).
CHUNK_TOKENS = 1024


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
    `batch_sizes[t]`. There is no padding. Read backward in time, rows join as the
    step reaches their last token: the same layout serves both directions.

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
        self.low_precision: Optional[Tuple[Tensor, Tensor, Optional[Tensor]]] = None

    def use_bfloat16(self) -> None:
        """Predict with matrix products in bfloat16. State, gates and sums stay in
        float32.
        """
        P = self.options.projection_dim
        weight = self.weight.detach().bfloat16()
        projection = self.projection
        self.low_precision = (
            weight[:P],
            weight[P:],
            None if projection is None else projection.detach().bfloat16(),
        )

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
        reverse: bool = False,
        keep: Optional[Tensor] = None,
    ) -> Tuple[Tensor, LSTMState]:
        """Run the layer over packed sequences.

        x (Floats2d): Packed inputs, shape (n_tokens, projection).
        batch_sizes (Sequence[int]): Rows alive at each time step, falling.
        state (LSTMState): The state before the first step; zeros if None.
        reverse (bool): Read from the last time step to the first.
        keep (Floats2d): Shape (n_tokens, 1): 0 where a token starts from the zero
            state, else 1. Only for training on contiguous rows.
        RETURNS (Tuple[Floats2d, LSTMState]): Outputs, packed as x, and the state of
            each row after its last step.
        """
        if state is None:
            state = self.initial_state(batch_sizes[0] if batch_sizes else 0)
        if torch.is_grad_enabled() and (self.weight.requires_grad or x.requires_grad):
            return self._forward_train(x, batch_sizes, state, reverse, keep)
        assert keep is None, "contiguous rows are for training"
        return self._forward_predict(x, batch_sizes, state, reverse)

    def _forward_train(
        self,
        x: Tensor,
        batch_sizes: Sequence[int],
        state: LSTMState,
        reverse: bool,
        keep: Optional[Tensor],
    ) -> Tuple[Tensor, LSTMState]:
        y, h, c = lstm_train(
            x, state.h, state.c, self.weight, self.bias, self.projection,
            batch_sizes, reverse, keep, self.options.cell_clip, self.options.proj_clip,
        )  # fmt: skip
        return y, LSTMState(h, c)

    def _forward_predict(
        self,
        x: Tensor,
        batch_sizes: Sequence[int],
        state: LSTMState,
        reverse: bool,
    ) -> Tuple[Tensor, LSTMState]:
        H, P = self.options.dim, self.options.projection_dim
        cell_clip, proj_clip = self.options.cell_clip, self.options.proj_clip
        bias, low = self.gate_bias(), self.low_precision
        w_input, w_recurrent = self.weight[:P], self.weight[P:]
        projection: Optional[Tensor] = self.projection
        if low is not None:
            w_input, w_recurrent, projection = low
        dtype = w_input.dtype
        h, c = state.h.clone(), state.c.clone()
        y = x.new_empty(x.shape[0], P)
        for steps in time_chunks(batch_sizes, reverse):
            start = min(lo for lo, _ in steps)
            end = max(hi for _, hi in steps)
            gates = _product(x[start:end], w_input, dtype).add_(bias)  # (n, 4H)
            for lo, hi in steps:
                n = hi - lo
                g = gates[lo - start : hi - start]
                if low is None:
                    g.addmm_(h[:n], w_recurrent)
                else:
                    g.add_(h[:n].to(dtype) @ w_recurrent)
                g[:, : 3 * H].sigmoid_()
                i, f, o, j = (
                    g[:, :H],
                    g[:, H : 2 * H],
                    g[:, 2 * H : 3 * H],
                    g[:, 3 * H :],
                )
                c_t = c[:n].mul_(f).addcmul_(i, j.tanh_())
                if cell_clip is not None:
                    c_t.clamp_(-cell_clip, cell_clip)
                m = torch.mul(torch.tanh(c_t), o, out=i)
                h_t = h[:n]
                if projection is None:
                    h_t.copy_(m)
                else:
                    h_t.copy_(_product(m, projection, dtype))
                    if proj_clip is not None:
                        h_t.clamp_(-proj_clip, proj_clip)
                y[lo:hi] = h_t
        return y, LSTMState(h, c)


def _product(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return (x.to(dtype) @ weight).float()


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
