"""Pretraining (Peters et al. 2018, section 3.4): what is checked before the loop."""

import math
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Dict, Optional

from thinc.api import Config
from wasabi import msg

from ..bilm.paths import (
    CHECKPOINT,
    OPTIONS_FILE,
    OPTIONS_NAMES,
    WEIGHTS_FILE,
    WEIGHTS_NAMES,
)
from ..errors import CorpusError, Errors, TrainingError, Warnings
from ..storage import beside, hold, remove_leftovers, replacing
from ..weights import resolve
from .checkpoint import load_checkpoint
from .config import Settings, read_config
from .corpus import TRAIN_CACHE, Corpus, load_corpora
from .corpus_files import key_of
from .distributed import joined_processes
from .evaluation import Perplexity
from .initialization import find_start, load_start
from .loggers import LOG, Log, find_logger
from .loop import Loop
from .machine import prepare_run
from .run import Run
from .vocabulary import VOCABULARY, write_vocabulary

CONFIG_FILE = "config.cfg"
RUN_FILES = (CONFIG_FILE, VOCABULARY, LOG)  # beside those of the model
LOCK_FILE = ".pretrain.lock"
# With a larger share of unknown words, a perplexity says little.
MANY_UNKNOWN = 0.5


def pretrain(settings: Settings, output: Path) -> Optional[Perplexity]:
    """Train a biLM on text, or resume an earlier run in the same folder that was
    stopped.

    output (Path): Receives options.json, weights.hdf5, vocab.txt, config.cfg,
        log.jsonl, the last two checkpoints, and the cache of the corpus.
    RETURNS (Perplexity): Of the held-out text, if there is one.
    RAISES (CorpusError): If the text or the vocabulary cannot be used.
    RAISES (TrainingError): If the training cannot continue, or was interrupted by
        SIGINT or SIGTERM: then all that was done is saved.
    RAISES (WeightsError): If the model to start from is missing or broken.
    RAISES (ValueError): If the rows are fewer than the processes.
    """
    with joined_processes(settings.training.device) as processes, ExitStack() as stack:
        if processes.is_first:
            busy = TrainingError(Errors.E114.format(path=output))
            stack.enter_context(hold(output / LOCK_FILE, busy))
            for name in (CHECKPOINT, OPTIONS_FILE, WEIGHTS_FILE, *RUN_FILES):
                remove_leftovers(output, name)
            _check_output(output)
        start = settings.paths.init_from
        with processes.first_ahead():  # it makes the cache, and the others open it
            # A text may take an hour to read: what else can be wrong is found before.
            if start and not (output / CHECKPOINT).is_file():
                find_start(settings.options, start)
            find_logger(settings)
            train, dev = load_corpora(settings, output)
        _check_vocabulary(settings, train, dev)
        run = prepare_run(settings, train, processes)
        load_checkpoint(run, output)
        _check_best(run, output)
        words = train.words[: train.vocab_size]
        if start and run.step == 0:
            load_start(run.bilm, run.softmax, words, start)
            if processes.is_first:
                _check_language(settings, start)
        log = None
        if processes.is_first:
            msg.info(_summary(run.settings, train))
            if run.step:
                msg.info(f"Resuming after step {run.step:,} of {run.n_steps:,}.")
            # Not before it is sure that the folder holds no other run.
            with replacing(output / CONFIG_FILE) as temporary:
                Config(settings.config).to_disk(temporary)
            write_vocabulary(output / VOCABULARY, words)
            log = Log(settings, output, run.step, run.n_steps)
        return Loop(run, dev, output, log).train()


def _check_output(output: Path) -> None:
    """RAISES (CorpusError): If a run would replace files that no run has left there, or
    make a folder of two models.
    """
    # A run makes the cache first. A finished model may have neither.
    is_a_runs = (output / CHECKPOINT).is_file() or key_of(output / TRAIN_CACHE)
    own = (OPTIONS_FILE, WEIGHTS_FILE, *RUN_FILES) if is_a_runs else ()
    for pattern in (*OPTIONS_NAMES[0], *WEIGHTS_NAMES[0], *RUN_FILES):
        for file in output.glob(pattern):
            if file.name not in own:
                raise CorpusError(Errors.E111.format(path=file))


def _check_best(run: Run, output: Path) -> None:
    """If the best weights so far are lost, the next ones are the best."""
    best_step, best = run.best
    files = (output / OPTIONS_FILE, output / WEIGHTS_FILE)
    lost = [file for file in files if not file.is_file()]
    if run.settings.training.keep_best and not math.isinf(best) and lost:
        msg.warn(Warnings.W015.format(path=lost[0], step=best_step))
        run.best = run.step, math.inf


def _check_vocabulary(
    settings: Settings, train: Corpus, dev: Dict[str, Corpus]
) -> None:
    """Warn if much of a text is outside the vocabulary.

    RAISES (CorpusError): If the vocabulary has no word of the training text.
    """
    if train.counts.unknown >= train.counts.words:
        path = settings.vocabulary.path or "made from the text"
        raise CorpusError(Errors.E059.format(path=path))
    for path, corpus in {"paths.train": train, **dev}.items():
        share = corpus.counts.unknown / max(1, corpus.counts.words)
        if share > MANY_UNKNOWN:
            warnings.warn(Warnings.W006.format(share=share, path=path), stacklevel=3)


def _check_language(settings: Settings, start: str) -> None:
    """Warn if the model that a run starts from was trained in another language."""
    path = beside(resolve(start), CONFIG_FILE)
    if path.is_file():
        theirs = read_config(path).get("nlp", {}).get("lang")
        ours = settings.nlp.get("lang")
        if theirs not in (None, ours):
            msg.warn(Warnings.W013.format(theirs=theirs, ours=ours))


def _summary(settings: Settings, corpus: Corpus) -> str:
    """What is trained on, and how."""
    counts, training = corpus.counts, settings.training
    longest = settings.options.char_cnn.max_characters_per_token - 2
    return (
        f"{counts.words:,.0f} words and punctuation marks in "
        f"{corpus.documents_per_epoch:,} documents per epoch. "
        f"{counts.unknown / counts.words:.2%} of the words are outside the "
        f"vocabulary of {corpus.vocab_size:,}; {counts.cut / counts.words:.3%} are cut "
        f"to {longest} bytes (model.char_cnn.max_characters_per_token). Products in "
        f"{training.precision}, {'' if training.compile else 'not '}compiled."
    )
