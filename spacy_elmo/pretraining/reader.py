"""The LSTMs of a biLM over windows of text, in training."""

import gc
from typing import Any, List, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bilm import BiLM
from ..bilm.lstm import LSTMState
from .config import TrainingSettings


class WindowReader(nn.Module):
    """Both directions over a window of each row.

    bilm (BiLM): The language model.
    settings (TrainingSettings): [training].
    """

    def __init__(self, bilm: BiLM, settings: TrainingSettings):
        super().__init__()
        self.bilm = bilm
        self.settings = settings

    def forward(self, x: Tensor, keep: Tensor, *before: Tensor) -> Tuple[Tensor, ...]:
        """Run the LSTMs over a window.

        x (Floats3d): Token vectors, (2, steps * rows, projection).
        keep (Floats3d): 0 where a token starts from the zero state, else 1; shape (2,
            steps * rows, 1).
        before (Floats2d): The state before the window: h and c of each layer, the
            forward ones first. Tensors alone, as CUDA graphs take them.
        RETURNS (Tuple[Floats2d, ...]): Outputs of the top layers, the forward one
            first, (2 * steps * rows, projection), and the state after the window.
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

    def zeros(self, n_rows: int) -> List[Tensor]:
        """The state before the first window."""
        h, c = self.bilm.initial_state(n_rows)
        return [x for pair in zip(h.flatten(0, 1), c.flatten(0, 1)) for x in pair]

    def record(self) -> None:
        """Record the kernels of a window, forward and backward, as CUDA graphs, which
        `forward` replays from now on. They are thousands and small: a GPU would wait
        for each of them to be launched.
        """
        before = self.zeros(self.settings.rows)
        n_tokens = self.settings.tokens_per_step
        x = before[0].new_zeros(2, n_tokens, before[0].shape[1], requires_grad=True)
        sample = x, x.new_ones(2, n_tokens, 1), *before
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
