"""A warmed initial state: the mean of the states that carried reading ends sentences
with. For models that were trained with carried state, the official ones among them,
which have never read a sentence from zeros.
"""

from typing import List, Sequence

import torch

from ..errors import CorpusError, Errors
from .model import BiLM, BiLMState

# Rows of text that are read side by side, and sentences of a row that only warm it up.
N_ROWS = 64
WARM_UP = 8


def mean_state(
    bilm: BiLM, sentences: Sequence[Sequence[str]], n_rows: int = N_ROWS
) -> BiLMState:
    """The mean state after a sentence, where each row of text is read sentence after
    sentence with its state carried along, as bilm-tf and AllenNLP do.

    bilm (BiLM): The model.
    sentences (Sequence[Sequence[str]]): Running text, some thousand sentences.
    n_rows (int): Rows that the text is cut into.
    RETURNS (BiLMState): Its `h` has shape (2, L, 1, projection), its `c`
        (2, L, 1, dim).
    RAISES (CorpusError): If the text is too short.
    """
    length = len(sentences) // n_rows
    if length <= WARM_UP:
        wanted = n_rows * (WARM_UP + 1)
        raise CorpusError(Errors.E043.format(found=len(sentences), wanted=wanted))
    rows = [sentences[i * length : (i + 1) * length] for i in range(n_rows)]
    state = bilm.initial_state(n_rows)
    h, c = [torch.zeros_like(part) for part in state]
    for i in range(length):
        batch: List[Sequence[str]] = [row[i] for row in rows]
        _, state = bilm.encode(batch, state)
        if i >= WARM_UP:
            h += state.h
            c += state.c
    n = length - WARM_UP
    return BiLMState((h / n).mean(2, keepdim=True), (c / n).mean(2, keepdim=True))
