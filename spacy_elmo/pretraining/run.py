"""A training run: everything that changes while a biLM is trained."""

from typing import NamedTuple, Optional

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from ..bilm import BiLM
from ..errors import CorpusError, Errors
from .config import Settings, TrainingSettings
from .corpus import Corpus
from .distributed import Processes
from .initialization import initialize, load_start
from .optimizer import make_optimizer
from .softmax import Softmax
from .towers import Towers
from .windows import Rows


class Run(NamedTuple):
    """What changes in place while a biLM is trained, and the processes that train it.

    bilm (BiLM): The biLM.
    softmax (Softmax): Its softmax.
    optimizer (Optimizer): Of both.
    rows (Rows): The text, and how far it has been read.
    towers (Module): Both directions of `bilm`, alone or in DistributedDataParallel.
    processes (Processes): Those that train.
    mean (AveragedModel): The mean of the weights of biLM and softmax over the last
        part of the run, if [training] asks for it.
    n_steps (int): Updates of the whole run.
    """

    bilm: BiLM
    softmax: Softmax
    optimizer: torch.optim.Optimizer
    rows: Rows
    towers: nn.Module
    processes: Processes
    mean: Optional[AveragedModel]
    n_steps: int

    @property
    def weights(self) -> nn.ModuleList:
        """BiLM and softmax: what is trained, saved and averaged."""
        return nn.ModuleList([self.bilm, self.softmax])


def start_run(
    settings: Settings, corpus: Corpus, processes: Optional[Processes] = None
) -> Run:
    """A run before its first update.

    settings (Settings): The config.
    corpus (Corpus): The training text.
    processes (Processes): Those that train; this one alone if None.
    RETURNS (Run): On the device of this process.
    RAISES (CorpusError): If the rows are fewer than the processes.
    """
    training, processes = settings.training, processes or Processes()
    if training.rows < processes.n:
        wanted = f"at least the number of processes, {processes.n}"
        raise CorpusError(
            Errors.E038.format(name="training.rows", wanted=wanted, found=training.rows)
        )
    bilm = initialize(BiLM(settings.options), training.seed)
    width = settings.options.lstm.projection_dim
    softmax = Softmax(corpus.vocab_size, width, training.softmax.sparse)
    softmax.initialize(training.seed + 1)
    if settings.paths.init_from:
        words = corpus.words[: corpus.vocab_size]
        load_start(bilm, softmax, words, settings.paths.init_from)
    bilm.to(processes.device)
    softmax.to(processes.device)
    towers: nn.Module = Towers(bilm, corpus, training.state == "zero", training.dropout)
    if processes.n > 1:
        towers = DistributedDataParallel(towers)
    optimizer = make_optimizer(training.optimizer, [bilm, softmax])
    mine = processes.share(training.rows)
    rows = Rows(
        corpus, training.rows, training.unroll_steps, training.seed, mine.start,
        mine.stop,
    )  # fmt: skip
    mean = None
    if training.average_share > 0:
        mean = AveragedModel(nn.ModuleList([bilm, softmax]))
    n_steps = count_steps(training, corpus)
    return Run(bilm, softmax, optimizer, rows, towers, processes, mean, n_steps)


def count_steps(settings: TrainingSettings, corpus: Corpus) -> int:
    """Updates of a whole run."""
    n_tokens = settings.max_epochs * corpus.tokens_per_epoch
    if settings.max_tokens is not None:
        n_tokens = min(n_tokens, settings.max_tokens)
    return max(1, int(n_tokens // settings.tokens_per_step))
