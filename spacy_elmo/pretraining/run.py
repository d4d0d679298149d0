"""A training run: what changes while a biLM is trained, and one update of it."""

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from ..bilm import BiLM
from ..bilm.lstm import LSTMState
from ..errors import require
from .config import OptimizerSettings, Settings, TrainingSettings
from .corpus import Corpus
from .distributed import ALONE, Processes
from .initialization import initialize
from .objective import Objective
from .softmax import Softmax, draw_sample
from .windows import Rows, Window

# The mean of the last weights is of so many of them.
N_AVERAGED = 20


@dataclass
class Run:
    """A biLM in training."""

    settings: Settings
    bilm: BiLM
    softmax: Softmax
    weights: nn.Module  # of both: what is trained, saved and averaged
    objective: nn.Module  # their loss, alone or in DistributedDataParallel
    optimizer: Optimizer
    rows: Rows  # the text, and how far it has been read
    processes: Processes
    mean: Optional[AveragedModel]  # of the weights, over the last part of the run
    n_steps: int  # updates of the whole run
    state: LSTMState  # before the next window
    step: int = 0  # updates done
    seconds: float = 0.0
    losses: List[float] = field(default_factory=list)  # since the last line of the log
    best: Tuple[int, float] = (0, math.inf)  # step and perplexity
    n_worse: int = 0  # evaluations since then

    @property
    def mean_begins(self) -> int:
        """The last step before the part of the run whose weights are averaged."""
        return self.n_steps - int(self.settings.training.average_share * self.n_steps)

    @property
    def is_averaged(self) -> bool:
        """Whether the weights after this step are of those that are averaged."""
        every = max(1, (self.n_steps - self.mean_begins) // N_AVERAGED)
        past = self.step - self.mean_begins
        return past > 0 and (past % every == 0 or self.step == self.n_steps)


def start_run(settings: Settings, corpus: Corpus, processes: Processes = ALONE) -> Run:
    """A run before its first update, on the device of this process.

    RAISES (ValueError): If the rows are fewer than the processes.
    """
    training = settings.training
    rows, n = training.rows, processes.n
    require(rows >= n, "training.rows", f"at least the number of processes, {n}", rows)
    bilm = initialize(BiLM(settings.options), training.seed)
    softmax = Softmax(corpus.vocab_size, settings.options.lstm.projection_dim)
    softmax.initialize(training.seed + 1, corpus.targets)
    weights = nn.ModuleList([bilm, softmax]).to(processes.device)
    objective = Objective(bilm, softmax, corpus, training)
    if processes.n == 1 and processes.device.type == "cuda":
        objective.reader.record()
    mine = processes.share(training.rows)
    return Run(
        settings=settings,
        bilm=bilm,
        softmax=softmax,
        weights=weights,
        objective=DistributedDataParallel(objective) if processes.n > 1 else objective,
        optimizer=_make_optimizer(training.optimizer, weights),
        rows=Rows(corpus, training.rows, training.unroll_steps, training.seed, mine),
        processes=processes,
        mean=AveragedModel(weights) if training.average_share > 0 else None,
        n_steps=count_steps(training, corpus),
        state=bilm.initial_state(len(mine)),
    )


def count_steps(settings: TrainingSettings, corpus: Corpus) -> int:
    """Updates of a whole run."""
    n_tokens = settings.max_epochs * corpus.tokens_per_epoch
    if settings.max_tokens is not None:
        n_tokens = min(n_tokens, settings.max_tokens)
    return max(1, int(n_tokens // settings.tokens_per_step))


def train_step(run: Run, batch: Window) -> Tuple[float, float]:
    """One update, unless the loss or the gradients are not finite.

    RETURNS (Tuple[float, float]): The loss before the update, the mean of both
        directions in nats a token; and the norm of all gradients before the clip.
    """
    training, processes, step = run.settings.training, run.processes, run.step
    # Seeded by the step, so that a resumed run draws the same numbers. All processes
    # draw the same negatives; each draws its own dropout.
    torch.manual_seed((training.seed << 32) + step * processes.n + processes.rank)
    rng = np.random.default_rng([training.seed, step])
    vocab_size, is_full = run.softmax.vocab_size, training.softmax.kind == "full"
    n_samples = vocab_size if is_full else training.softmax.n_samples
    sample = draw_sample(rng, n_samples, vocab_size).to(processes.device)
    run.optimizer.zero_grad(set_to_none=True)
    loss, state = run.objective(batch, run.state, sample)
    # Processes average their gradients, and may have numbers of rows that differ.
    n_rows = batch.inputs.shape[2]
    share = n_rows * processes.n / training.rows
    (loss * (training.loss_scale * share)).backward()
    parameters = run.weights.parameters()
    found = nn.utils.clip_grad_norm_(parameters, training.grad_clip)
    run.rows.look_ahead()  # before the wait for a GPU
    norm = float(found)
    mean = processes.sum(loss.detach() * n_rows).item() / training.rows
    if math.isfinite(mean) and math.isfinite(norm):
        for group in run.optimizer.param_groups:
            group["lr"] = learn_rate(training.optimizer, step, run.n_steps)
        run.optimizer.step()
    run.step, run.state = step + 1, state
    return mean, norm


def _make_optimizer(settings: OptimizerSettings, weights: nn.Module) -> Optimizer:
    """Adagrad (Duchi et al. 2011) or AdamW (Loshchilov and Hutter 2019)."""
    parameters, rate = list(weights.parameters()), settings.learn_rate
    if settings.name == "adagrad":
        start = settings.initial_accumulator
        return torch.optim.Adagrad(parameters, rate, initial_accumulator_value=start)
    # Matrices decay, and with them the LSTMs' biases, which are a row of the kernel.
    # Other biases do not.
    groups: List[Dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1]},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    betas, decay = (settings.beta1, settings.beta2), settings.weight_decay
    return torch.optim.AdamW(groups, rate, betas, weight_decay=decay, fused=True)


def learn_rate(settings: OptimizerSettings, step: int, n: int) -> float:
    """The learning rate of update `step` (from 0) of n."""
    rate, warmup = settings.learn_rate, settings.warmup_steps
    if step < warmup:
        return rate * (step + 1) / warmup
    # The completed fraction of the decay: 0 while the rate is constant.
    first = max(warmup, n - settings.decay_share * n)
    done = max(0.0, step - first) / max(1.0, n - first)
    if settings.decay == "cosine":
        return rate * (1 + math.cos(math.pi * done)) / 2
    return rate * (1 - done) if settings.decay == "linear" else rate
