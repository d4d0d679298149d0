"""How fast this machine trains, and how long a run can be."""

import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from thinc.api import Config

from ..pretraining.config import read_settings
from ..pretraining.corpus import load_corpora
from ..pretraining.distributed import joined_processes
from ..pretraining.machine import prepare_run
from ..pretraining.run import train_step
from ..text.files import TEXT
from .raw_text import Survey

# Steps that are run and, after those of the warm-up, timed.
N_STEPS, WARM_UP = 12, 4
SAMPLE_CHARACTERS = 1_000_000
# The rest of the time goes to evaluations and checkpoints.
TRAINING_SHARE = 0.93
# One word in the vocabulary for this number of tokens that the run reads.
TOKENS_PER_ENTRY, MIN_ENTRIES, MAX_ENTRIES = 1000, 5000, 50_000
# A run of fewer steps has fewer rows: see benchmarks/trials.md.
MIN_STEPS, MIN_ROWS = 4000, 32
# With more epochs than this, the biLM overfits without dropout.
MANY_EPOCHS, DROPOUT = 2.0, 0.1
EVALUATIONS = 10
# All of them together read a twentieth of what the run reads, or less.
EVALUATED = 20 * EVALUATIONS
CHECKPOINT_SECONDS = 120
# The learning rate rises over at most a tenth of the run.
MAX_WARM_UP = 0.1


class Pace(NamedTuple):
    """What the first steps on a text tell.

    tokens_per_second (float): Of this machine.
    tokens_per_word (float): Of the text: punctuation and the ends of sentences are
        tokens, too, and some tokenizers, such as that of Korean, divide words.
    """

    tokens_per_second: float
    tokens_per_word: float


def measure_pace(config: Config, survey: Survey, corpus: Path, hours: float) -> Pace:
    """How fast this machine trains in a run of some hours. Whether that is compiled
    depends on its length, and so on its pace without that: it is measured twice.

    corpus (Path): The folder of the text. Receives a temporary folder.
    """
    planned, plain = config.copy(), config.copy()
    plain["training"]["compile"] = False
    set_length(planned, survey, _time_steps(plain, corpus), hours)
    return _time_steps(planned, corpus)


def _time_steps(config: Config, corpus: Path) -> Pace:
    """The pace of the first steps on the beginning of a text."""
    config = config.copy()
    # As long as the run will be, though the sample is short; the others need held-out
    # text.
    config["training"].update(max_epochs=1e9, keep_best=False, patience=None)
    with TemporaryDirectory(dir=corpus) as name:
        folder = Path(name)
        sample, path = folder / TEXT, folder / "config.cfg"
        text = _read_pieces(corpus / TEXT, config["training"]["rows"])
        sample.write_text(text, encoding="utf8")
        config["paths"].update(train=str(sample), dev=None)
        config.to_disk(path)
        settings = read_settings(path)
        with joined_processes(settings.training.device) as processes:
            train, _ = load_corpora(settings, folder)
            run = prepare_run(settings, train, processes)
            ends = []
            for _ in range(N_STEPS):
                train_step(run, run.rows.read())
                ends.append(time.perf_counter())
            tokens_per_word = len(train.tokens) / len(text.split())
        del train, run  # Windows removes no file that is mapped
        torch.cuda.empty_cache()  # the run itself is another process
    # The first ones compile, and the median leaves out one that compiles later.
    seconds = [end - start for start, end in pairwise(ends[WARM_UP:])]
    return Pace(settings.training.tokens_per_step / median(seconds), tokens_per_word)


def _read_pieces(path: Path, n: int) -> str:
    """The beginning of a text: SAMPLE_CHARACTERS of it, or as many times that as it
    takes to have n pieces, each of which an empty line ends.
    """
    read = ""
    with path.open(encoding="utf8") as file:
        while more := file.read(SAMPLE_CHARACTERS):
            read += more
            if read.count("\n\n") >= n:
                break
    return read


def set_length(config: Config, survey: Survey, pace: Pace, hours: float) -> float:
    """Set the length of a run, and what depends on it.

    hours (float): How long it may train.
    RETURNS (float): How often it will read the text.
    """
    training = config["training"]
    text_tokens = pace.tokens_per_word * survey.words
    affordable = TRAINING_SHARE * pace.tokens_per_second * hours * 3600
    tokens = int(min(affordable, training["max_epochs"] * text_tokens))
    epochs = tokens / text_tokens
    enough = tokens / training["unroll_steps"] / MIN_STEPS
    while training["rows"] >= 2 * MIN_ROWS and training["rows"] > enough:
        training["rows"] //= 2
    tokens_per_step = training["rows"] * training["unroll_steps"]
    per_second = pace.tokens_per_second / tokens_per_step
    n_steps = max(1, tokens // tokens_per_step)
    entries = min(MAX_ENTRIES, max(MIN_ENTRIES, tokens // TOKENS_PER_ENTRY))
    config["vocabulary"]["max_size"] = entries
    evaluated = max(1, tokens // EVALUATED)
    training.update(
        max_tokens=tokens,
        dropout=DROPOUT if epochs > MANY_EPOCHS else 0.0,
        # A run writes the mean of its last checkpoints or the best one, not both.
        keep_best=epochs > MANY_EPOCHS and not training["average_share"],
        eval_steps=max(1, n_steps // EVALUATIONS),
        # 0 would be all of the text.
        eval_tokens=min(training["eval_tokens"] or evaluated, evaluated),
        checkpoint_steps=max(1, int(CHECKPOINT_SECONDS * per_second)),
        checkpoint_minutes=CHECKPOINT_SECONDS / 60,
    )
    optimizer = training["optimizer"]
    optimizer["warmup_steps"] = min(
        optimizer["warmup_steps"], int(MAX_WARM_UP * n_steps)
    )
    return epochs
