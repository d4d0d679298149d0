"""Both directions of the biLM over a window: what DistributedDataParallel wraps."""

from typing import List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bilm import BiLM
from ..bilm.lstm import LSTMState
from .corpus import Corpus
from .vocabulary import BOS_ID, EOS_ID
from .windows import Directions

# The state of the LSTMs: by direction, by layer.
States = List[List[LSTMState]]


class Towers(nn.Module):
    """Reads a window of each row, forward and backward.

    bilm (BiLM): The language model.
    corpus (Corpus): Tells the characters of its words.
    zero_state (bool): Each sentence starts from the zero state.
    dropout (float): Of the input of each LSTM layer and of the output.
    """

    def __init__(self, bilm: BiLM, corpus: Corpus, zero_state: bool, dropout: float):
        super().__init__()
        self.bilm = bilm
        self.corpus = corpus
        self.zero_state = zero_state
        self.dropout = dropout

    def forward(
        self, batch: Directions, states: Optional[States]
    ) -> Tuple[Tensor, States]:
        """batch (Directions): Shapes (2, steps, rows).
        states (States): The state before the window; zeros if None.
        RETURNS (Tuple[Floats2d, States]): Outputs of the top layer, of the forward
            direction and then of the backward one, (2 * steps * rows, projection);
            and the state after the window.
        """
        _, n_steps, n_rows = batch.inputs.shape
        x = self._token_vectors(batch)  # (2, steps * rows, projection)
        tops: List[Tensor] = []
        after: States = []
        for d in range(2):
            layers, last = self.bilm.run_direction(
                d, x[d], [n_rows] * n_steps, None if states is None else states[d],
                keep=self._keep(batch, d) if self.zero_state else None,
                dropout=self.dropout,
            )  # fmt: skip
            tops.append(F.dropout(layers[-1], self.dropout))
            after.append(last)
        return torch.cat(tops), after

    def _token_vectors(self, batch: Directions) -> Tensor:
        """Each distinct word of both windows through the token encoder once."""
        words, where = np.unique(batch.inputs, return_inverse=True)
        characters = torch.from_numpy(self.corpus.characters[words])
        table = self.bilm.encoder(characters.to(self._device))
        index = torch.from_numpy(where.reshape(2, -1)).to(self._device)
        return F.embedding(index, table.float())

    def _keep(self, batch: Directions, direction: int) -> Tensor:
        """0 where a sentence begins (at <S> forward, at </S> backward), else 1."""
        first = (BOS_ID, EOS_ID)[direction]
        begins = batch.inputs[direction].reshape(-1, 1) == first
        return torch.from_numpy(~begins).float().to(self._device)

    @property
    def _device(self) -> torch.device:
        return self.bilm.encoder.char_embed.device
