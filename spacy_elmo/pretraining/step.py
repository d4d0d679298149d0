"""One update of the weights."""

import math
from contextlib import ExitStack
from typing import List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ..bilm.lstm import LSTMState
from .config import TrainingSettings
from .distributed import Processes, shares
from .optimizer import set_learn_rate
from .run import Run
from .sampling import Sample, draw_sample
from .softmax import Softmax, sparse_rows
from .towers import States
from .windows import Directions


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
    batch (Directions): A window of each row of this process, (2, steps, rows).
    states (States): The state before the window; zeros if None.
    step (int): Updates done.
    n_steps (int): Updates of the whole run.
    RETURNS (Step): The loss before the update, and the state after the window.
    """
    processes = run.processes
    # By step and not by what ran before: a resumed run draws the same. Processes
    # share their negatives, so that few rows of the softmax have to be exchanged,
    # but not their dropout.
    torch.manual_seed((settings.seed << 32) + step * processes.n + processes.rank)
    rng = np.random.default_rng([settings.seed, step])
    set_learn_rate(run.optimizer, settings.optimizer, step, n_steps)
    run.optimizer.zero_grad(set_to_none=True)
    sample = None
    if settings.softmax.kind == "sampled":
        n_samples, n_words = settings.softmax.n_samples, run.rows.corpus.vocab_size
        sample = draw_sample(rng, n_samples, n_words).to(processes.device)
    loss, after = _accumulate(run, settings, batch, states, sample)
    exchange_gradients(run.softmax, sample, processes)
    parameters = [*run.bilm.parameters(), *run.softmax.parameters()]
    norm = clip_gradients(parameters, settings.grad_clip)
    done = Step(processes.sum(loss).item() / settings.rows, norm, after)
    if done.is_finite:
        # Else torch warns that it does not check what it makes itself.
        with torch.sparse.check_sparse_tensor_invariants(False):
            run.optimizer.step()
    return done


def _accumulate(
    run: Run,
    settings: TrainingSettings,
    batch: Directions,
    states: Optional[States],
    sample: Optional[Sample],
) -> Tuple[Tensor, States]:
    """The gradients of a batch, some of its rows at a time.

    RETURNS (Tuple[Floats0d, States]): The loss, summed over the rows of this process,
        and the state after the window.
    """
    device = run.processes.device
    total = torch.zeros((), device=device)
    afters: List[States] = []
    parts = shares(batch.inputs.shape[2], settings.accumulate_gradient)
    for i, rows in enumerate(parts):
        part = Directions(*(ids[:, :, rows] for ids in batch))
        n_rows = part.inputs.shape[2]
        with ExitStack() as stack:
            if i + 1 < len(parts) and isinstance(run.towers, DistributedDataParallel):
                stack.enter_context(run.towers.no_sync())
            with torch.autocast(
                device.type,
                dtype=torch.bfloat16,
                enabled=settings.precision == "bfloat16",
            ):
                h, after = run.towers(part, _of_rows(states, rows))
                targets = run.rows.corpus.in_vocabulary(part.targets.reshape(-1))
                targets_on = torch.from_numpy(targets).to(device)
                loss = run.softmax(h, targets_on, sample)
            # Gradients are averaged over the processes: the mean over all rows
            # takes the share of these.
            share = n_rows * run.processes.n / settings.rows
            (loss * (settings.loss_scale * share)).backward()
        total += loss.detach() * n_rows
        afters.append(after)
    return total, _join_rows(afters)


def exchange_gradients(
    softmax: Softmax, sample: Optional[Sample], processes: Processes
) -> None:
    """Average the gradients of the softmax over the processes. A sparse one has the
    rows of the negatives, which all share, and those of the targets: what is sent
    grows with the batch and not with the vocabulary.
    """
    if processes.n == 1:
        return
    for param in softmax.parameters():
        assert param.grad is not None
        if not param.grad.is_sparse:
            processes.sum(param.grad).div_(processes.n)
    if not softmax.sparse:
        return
    weight = softmax.weight
    assert weight.grad is not None
    assert sample is not None
    gradient = weight.grad.coalesce()
    ids, values = gradient.indices()[0], gradient.values()
    shared = torch.isin(ids, sample.ids)
    negatives = processes.sum(values[shared].contiguous())
    others = processes.concatenate(ids[~shared])
    rows = processes.concatenate(values[~shared])
    weight.grad = sparse_rows(
        torch.cat([ids[shared], others]),
        torch.cat([negatives, rows]).div_(processes.n),
        weight,
    )


def clip_gradients(parameters: List[torch.nn.Parameter], max_norm: float) -> float:
    """Scale gradients, dense or sparse, so that their norm together is at most
    max_norm.

    RETURNS (float): The norm before.
    """
    values = []
    for param in parameters:
        if param.grad is not None and param.grad.is_sparse:
            param.grad = param.grad.coalesce()
            values.append(param.grad.values())
        elif param.grad is not None:
            values.append(param.grad)
    norms = torch._foreach_norm(values)
    norm = torch.linalg.vector_norm(torch.stack([n.to(norms[0]) for n in norms]))
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    torch._foreach_mul_(values, scale)
    return float(norm)


def _of_rows(states: Optional[States], rows: slice) -> Optional[States]:
    if states is None:
        return None
    return [[LSTMState(h[rows], c[rows]) for h, c in layers] for layers in states]


def _join_rows(parts: List[States]) -> States:
    if len(parts) == 1:
        return parts[0]
    return [
        [
            LSTMState(*(torch.cat(tensors) for tensors in zip(*same)))
            for same in zip(*layers)
        ]
        for layers in zip(*parts)
    ]
