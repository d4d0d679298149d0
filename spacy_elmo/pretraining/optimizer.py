import math
from typing import Any, Dict, List

import torch
from torch import nn

from .config import OptimizerSettings


def make_optimizer(
    settings: OptimizerSettings, modules: List[nn.Module]
) -> torch.optim.Optimizer:
    """The optimizer of the parameters of some modules.

    settings (OptimizerSettings): [training.optimizer].
    modules (List[Module]): What to train.
    RETURNS (Optimizer): Adagrad (Duchi et al. 2011) or AdamW (Loshchilov and Hutter
        2019).
    """
    parameters = [p for module in modules for p in module.parameters()]
    if settings.name == "adagrad":
        return torch.optim.Adagrad(
            parameters,
            lr=settings.learn_rate,
            initial_accumulator_value=settings.initial_accumulator,
        )
    # Matrices decay, and with them the LSTMs' biases, which are a row of the kernel.
    # Other biases do not.
    groups: List[Dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1]},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=settings.learn_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=True,
    )


def set_learn_rate(
    optimizer: torch.optim.Optimizer, settings: OptimizerSettings, step: int, n: int
) -> None:
    """Set the learning rate of a step.

    step (int): Updates done.
    n (int): Updates of the whole run.
    """
    rate = learn_rate(settings, step, n)
    for group in optimizer.param_groups:
        group["lr"] = rate


def learn_rate(settings: OptimizerSettings, step: int, n: int) -> float:
    """The learning rate of update `step` (from 0) of n."""
    rate, warmup = settings.learn_rate, settings.warmup_steps
    if step < warmup:
        return rate * (step + 1) / warmup
    # The share of the decay that is behind: 0 while the rate stands still.
    first = max(warmup, n - settings.decay_share * n)
    done = max(0.0, step - first) / max(1.0, n - first)
    if settings.decay == "cosine":
        return rate * (1 + math.cos(math.pi * done)) / 2
    return rate * (1 - done) if settings.decay == "linear" else rate
