"""The mean of the weights over the last part of a run."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ..bilm import BiLM
from .config import TrainingSettings
from .language_model import AnySoftmax


class Average:
    """The mean of the weights at the checkpoints of the last part of a run (stochastic
    weight averaging, Izmailov et al. 2018). It takes out the noise of a learning rate
    that stands still, and the run itself can go on from its own weights.

    bilm (BiLM): The biLM.
    softmax (Softmax or AdaptiveSoftmax): Its softmax.
    settings (TrainingSettings): [training].
    n_steps (int): Updates of the whole run.
    """

    def __init__(
        self,
        bilm: BiLM,
        softmax: AnySoftmax,
        settings: TrainingSettings,
        n_steps: int,
    ):
        self.first = n_steps - int(settings.average_share * n_steps)
        self.weights = nn.ModuleList([bilm, softmax])
        # A copy of all weights, unless there is nothing to average.
        wanted = settings.average_share > 0
        self.mean = AveragedModel(self.weights) if wanted else None

    def update(self, step: int) -> None:
        """Take the weights after a step into the mean, if it is late enough."""
        if self.mean is not None and step > self.first:
            self.mean.update_parameters(self.weights)

    def apply(self) -> None:
        """Set the weights to their mean, if there is one."""
        if self.mean is None or not int(self.mean.n_averaged):
            return
        with torch.no_grad():
            for mine, mean in zip(
                self.weights.parameters(), self.mean.parameters(), strict=True
            ):
                mine.copy_(mean)
