"""The LSTMs of a biLM over windows of text, in training."""

import gc
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bilm import BiLM
from ..bilm.lstm import LSTMState
from .config import TrainingSettings

# The state of the LSTMs: by direction, by layer.
States = List[List[LSTMState]]


class WindowReader(nn.Module):
    """Both directions over a window of each row.

    bilm (BiLM): The language model.
    settings (TrainingSettings): [training].
    """

    def __init__(self, bilm: BiLM, settings: TrainingSettings):
        super().__init__()
        self.bilm = bilm
        self.settings = settings

    def read(
        self, x: Tensor, keep: Tensor, states: Optional[States]
    ) -> Tuple[Tensor, States]:
        """x (Floats3d): Token vectors, (2, steps * rows, projection).
        keep (Floats3d): 0 where a token starts from the zero state, else 1; shape (2,
            steps * rows, 1).
        states (States): The state before the window; zeros if None.
        RETURNS (Tuple[Floats2d, States]): Outputs of the top layers, the forward one
            first, (2 * steps * rows, projection), and the state after the window.
        """
        if states is None:
            states = self._zeros(x.shape[1] // self.settings.unroll_steps)
        h, *after = self(x, keep, *_flat(states))
        after = [tensor.detach() for tensor in after]
        pairs = [LSTMState(*after[i : i + 2]) for i in range(0, len(after), 2)]
        n_layers = len(pairs) // 2
        return h, [pairs[:n_layers], pairs[n_layers:]]

    def forward(self, x: Tensor, keep: Tensor, *before: Tensor) -> Tuple[Tensor, ...]:
        """`read` with nothing but tensors: h and c of the layers, forward ones first,
        behind the rest.
        """
        n_steps, dropout = self.settings.unroll_steps, self.settings.dropout
        sizes = [x.shape[1] // n_steps] * n_steps
        tops: List[Tensor] = []
        after: List[Tensor] = []
        n = len(before) // 2
        for d in range(2):
            h_and_c = before[d * n : (d + 1) * n]
            state = [LSTMState(*h_and_c[i : i + 2]) for i in range(0, n, 2)]
            layers, last = self.bilm.run_direction(
                d, x[d], sizes, state, keep=keep[d], dropout=dropout
            )
            tops.append(F.dropout(layers[-1], dropout))
            after += [tensor for state in last for tensor in state]
        return torch.cat(tops), *after

    def record(self) -> None:
        """Record the kernels of a window, forward and backward, as CUDA graphs, which
        `forward` replays from now on. They are thousands and small: a GPU would wait
        for each of them to be launched.
        """
        rows, steps = self.settings.rows, self.settings.unroll_steps
        states = self._zeros(rows)
        x = states[0][0].h.new_zeros(2, rows * steps, states[0][0].h.shape[1])
        ones = x.new_ones(2, rows * steps, 1)
        sample = x.requires_grad_(), ones, *_flat(states)
        gc.collect()  # A graph that is freed while another is recorded spoils it.
        with autocast(x.device, self.settings):
            torch.cuda.make_graphed_callables(self, sample, allow_unused_input=True)

    def _zeros(self, n_rows: int) -> States:
        h, c = self.bilm.initial_state(n_rows)
        return [[LSTMState(*layer) for layer in zip(*both)] for both in zip(h, c)]


def _flat(states: States) -> List[Tensor]:
    return [tensor for layers in states for state in layers for tensor in state]


def autocast(device: torch.device, settings: TrainingSettings) -> Any:
    """The precision of the products."""
    return torch.autocast(
        device.type,
        torch.bfloat16,
        enabled=settings.precision == "bfloat16",
        cache_enabled=False,
    )
