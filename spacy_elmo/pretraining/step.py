"""One update of the weights."""

import math
from typing import List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..bilm import BiLM
from .checkpoint import Run, States
from .corpus import Corpus
from .directions import Directions
from .optimizer import set_learn_rate
from .sampling import draw_sample
from .settings import TrainingSettings
from .vocabulary import BOS_ID, EOS_ID


class Step(NamedTuple):
    """What an update did.

    loss (float): The mean of both directions in nats a token.
    norm (float): Norm of all gradients together, before the clip.
    states (States): The state that the next window starts from.
    """

    loss: float
    norm: float
    states: States

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def train_step(
    run: Run,
    settings: TrainingSettings,
    batch: Directions,
    states: Optional[States],
    step: int,
    n_steps: int,
) -> Step:
    """One update, unless the loss or the gradients are not finite.

    run (Run): Changed in place.
    settings (TrainingSettings): [training].
    batch (Directions): A window of each row, shapes (2, steps, rows).
    states (States): The state before the window; zeros if None.
    step (int): Updates done.
    n_steps (int): Updates of the whole run.
    RETURNS (Step): The loss before the update, and the state after the window.
    """
    # By step and not by what ran before: a resumed run draws the same.
    torch.manual_seed((settings.seed << 32) + step)
    rng = np.random.default_rng([settings.seed, step])
    set_learn_rate(run.optimizer, settings.optimizer, step, n_steps)
    loss, after = _loss(run, settings, batch, states, rng)
    run.optimizer.zero_grad(set_to_none=True)
    (loss * settings.loss_scale).backward()
    parameters = [*run.bilm.parameters(), *run.softmax.parameters()]
    norm = torch.nn.utils.clip_grad_norm_(parameters, settings.grad_clip)
    done = Step(loss.item(), norm.item(), after)
    if done.is_finite:
        run.optimizer.step()
    return done


def _loss(
    run: Run,
    settings: TrainingSettings,
    batch: Directions,
    states: Optional[States],
    rng: np.random.Generator,
) -> Tuple[Tensor, States]:
    """The mean of both directions in nats a token, and the state after the window."""
    bilm, corpus = run.bilm, run.rows.corpus
    _, n_steps, n_rows = batch.inputs.shape
    device = bilm.encoder.char_embed.device
    low = settings.precision == "bfloat16"
    tops: List[Tensor] = []
    after: States = []
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=low):
        x = _token_vectors(bilm, corpus, batch)  # (2, steps * rows, projection)
        for d in range(2):
            layers, last = bilm.run_direction(
                d, x[d], [n_rows] * n_steps, None if states is None else states[d],
                keep=_keep(batch, d, device) if settings.state == "zero" else None,
                dropout=settings.dropout,
            )  # fmt: skip
            tops.append(F.dropout(layers[-1], settings.dropout))
            after.append(last)
        targets = torch.from_numpy(corpus.in_vocabulary(batch.targets.reshape(-1)))
        sample = None
        if settings.softmax.kind == "sampled":
            n_samples = settings.softmax.n_samples
            sample = draw_sample(rng, n_samples, corpus.vocab_size).to(device)
        loss = run.softmax(torch.cat(tops), targets.to(device), sample)
    return loss, after


def _token_vectors(bilm: BiLM, corpus: Corpus, batch: Directions) -> Tensor:
    """Each distinct word of both windows through the token encoder once."""
    words, where = np.unique(batch.inputs, return_inverse=True)
    device = bilm.encoder.char_embed.device
    table = bilm.encoder(torch.from_numpy(corpus.characters[words]).to(device))
    index = torch.from_numpy(where.reshape(2, -1)).to(device)
    return F.embedding(index, table.float())


def _keep(batch: Directions, direction: int, device: torch.device) -> Tensor:
    """0 where a sentence begins (at <S> forward, at </S> backward), else 1."""
    first = (BOS_ID, EOS_ID)[direction]
    begins = batch.inputs[direction].reshape(-1, 1) == first
    return torch.from_numpy(~begins).float().to(device)
