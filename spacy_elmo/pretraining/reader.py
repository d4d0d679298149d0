"""The LSTMs of a biLM over windows of text, in training."""

import gc
from typing import Any, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bilm import BiLM
from ..bilm.lstm import LSTMState, stack_states
from .config import TrainingSettings


class WindowReader(nn.Module):
    """Both directions over a window of each row."""

    def __init__(self, bilm: BiLM, settings: TrainingSettings):
        super().__init__()
        self.bilm = bilm
        self.settings = settings

    def forward(
        self, x: Tensor, keep: Tensor, h: Tensor, c: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Run the LSTMs over a window.

        x (Floats3d): Token vectors, (2, steps * rows, projection).
        keep (Floats3d): 0 where a token starts from the zero state, else 1; shape (2,
            steps * rows, 1).
        h, c (Floats4d): The state before the window, as of `initial_state`. CUDA graphs
            take tensors alone.
        RETURNS (Tuple[Floats2d, Floats4d, Floats4d]): Outputs of the top layers, the
            forward one first, (2 * steps * rows, projection), and the state after the
            window.
        """
        n_steps, dropout = self.settings.unroll_steps, self.settings.dropout
        sizes = [x.shape[1] // n_steps] * n_steps
        tops, states = [], []
        for d in range(2):
            layers, state = self.bilm.run_direction(
                d, x[d], sizes, LSTMState(h[d], c[d]), keep=keep[d], dropout=dropout
            )
            tops.append(F.dropout(layers[-1], dropout))
            states.append(state)
        return torch.cat(tops), *stack_states(states)

    def record(self) -> None:
        """Record the kernels of a window, forward and backward, as CUDA graphs, which
        `forward` replays from now on. They are thousands and small: a GPU would wait
        for each of them to be launched.
        """
        h, c = self.bilm.initial_state(self.settings.rows)
        n_tokens = self.settings.tokens_per_step
        x = h.new_zeros(2, n_tokens, h.shape[-1], requires_grad=True)
        sample = x, x.new_ones(2, n_tokens, 1), h, c
        gc.collect()  # A graph that is freed while another is recorded spoils it.
        with autocast(x.device, self.settings):
            torch.cuda.make_graphed_callables(self, sample, allow_unused_input=True)


def autocast(device: torch.device, settings: TrainingSettings) -> Any:
    """The precision of the products."""
    return torch.autocast(
        device.type,
        torch.bfloat16,
        enabled=settings.precision == "bfloat16",
        cache_enabled=False,
    )
