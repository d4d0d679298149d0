"""The loss of a biLM in training: token encoder, LSTMs and softmax over windows."""

import gc
from typing import Any, Tuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bilm import BiLM
from ..bilm.lstm import LSTMState, stack_states
from .config import TrainingSettings
from .corpus import Corpus
from .softmax import Sample, Softmax
from .vocabulary import BOS_ID, EOS_ID
from .windows import Window


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


class Objective(nn.Module):
    """The loss of a window of each row, read forward and backward. The corpus tells the
    characters of its words.
    """

    def __init__(
        self, bilm: BiLM, softmax: Softmax, corpus: Corpus, settings: TrainingSettings
    ):
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self.corpus = corpus
        self.settings = settings
        self.reader = WindowReader(bilm, settings)

    def forward(
        self, batch: Window, state: LSTMState, sample: Sample
    ) -> Tuple[Tensor, LSTMState]:
        """The loss of a window, the mean of both directions in nats a token, and the
        state after the window, given the state before it.
        """
        with autocast(self.softmax.bias.device, self.settings):
            # Each distinct word is encoded once.
            characters = self._on_device(self.corpus.characters[batch.words])
            table = self.bilm.encoder(characters)
            x = F.embedding(self._on_device(batch.places), table.float())
            y, h, c = self.reader(x, self._keep(batch), *state)
            targets = self.corpus.in_vocabulary(batch.targets.reshape(-1))
            loss = self.softmax(y, self._on_device(targets).long(), sample)
        return loss, LSTMState(h.detach(), c.detach())

    def _keep(self, batch: Window) -> Tensor:
        """0 where a row starts from the zero state, else 1: unless the state is
        carried, in front of each sentence (at <S> forward, at </S> backward). Shape
        (2, steps * rows, 1).
        """
        inputs = batch.inputs.reshape(2, -1, 1)
        goes_on = inputs != np.reshape([BOS_ID, EOS_ID], (2, 1, 1))
        is_carried = self.settings.state == "carried"
        return self._on_device(goes_on | is_carried).float()

    def _on_device(self, x: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(x).to(self.softmax.bias.device)


def autocast(device: torch.device, settings: TrainingSettings) -> Any:
    """The precision of the products."""
    is_on = settings.precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, is_on, cache_enabled=False)
