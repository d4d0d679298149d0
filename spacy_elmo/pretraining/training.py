"""The training loop (Peters et al. 2018, section 3.4)."""

import math
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from ..bilm import BiLM
from ..bilm.char_conv import compile_split
from ..bilm.lstm_grad import compile_cells
from ..errors import CorpusError, Errors, TrainingError
from .adaptation import load_start
from .average import Average
from .checkpoint import Progress, Run, load_checkpoint, save_checkpoint
from .config import Settings, TrainingSettings
from .corpus import Corpus, load_corpora
from .directions import Directions
from .distributed import Processes, joined_processes
from .evaluation import Perplexity, evaluate
from .initialization import initialize
from .language_model import VOCABULARY, make_softmax, write_model
from .log import Log
from .loggers import open_logger
from .optimizer import make_optimizer
from .softmax import compile_softmax
from .step import Step, train_step
from .towers import Towers
from .vocabulary import write_vocabulary
from .windows import Rows

LOG = "log.jsonl"
CONFIG = "config.cfg"


def pretrain(
    settings: Settings, output: Path, *, silent: bool = False
) -> Optional[Perplexity]:
    """Train a biLM on text, or go on where an earlier run in the same folder was
    stopped.

    settings (Settings): The config.
    output (Path): Receives options.json, weights.hdf5, vocab.txt, config.cfg,
        log.jsonl, the last two checkpoints and the cache of the corpus.
    silent (bool): No progress bar.
    RETURNS (Perplexity): Of the held-out text, if there is one.
    RAISES (CorpusError): If the text or the vocabulary cannot be used.
    RAISES (TrainingError): If the training cannot go on.
    """
    # oneDNN keeps a compiled product with its memory for each shape that it meets,
    # 1024 of them by default. Each batch has another number of distinct words, and
    # so bfloat16 on a CPU would grow by gigabytes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    with joined_processes() as processes:
        return _pretrain(settings, output, processes, silent or not processes.is_first)


def _pretrain(
    settings: Settings, output: Path, processes: Processes, silent: bool
) -> Optional[Perplexity]:
    if processes.is_first:
        output.mkdir(parents=True, exist_ok=True)
        load_corpora(settings, output, silent=silent)
    processes.wait()  # for the cache, which the others only open
    train, dev = load_corpora(settings, output, silent=silent)
    if settings.training.compile:
        compile_split()
        compile_cells()
        compile_softmax()
    with _explained_out_of_memory(settings.training):
        run = start_run(settings, train, processes)
        progress = load_checkpoint(run, settings, output)
        if processes.is_first:
            # Not before it is sure that the folder holds no other run.
            settings.config.to_disk(output / CONFIG)
            write_vocabulary(output / VOCABULARY, train.words[: train.vocab_size])
        return _train(run, progress, dev, settings, output, silent)


def start_run(
    settings: Settings, corpus: Corpus, processes: Optional[Processes] = None
) -> Run:
    """A biLM, its softmax, the optimizer and the rows, as they are before training.

    settings (Settings): The config.
    corpus (Corpus): The training text.
    processes (Processes): Those that train; this one alone if None.
    RETURNS (Run): All of them, on the device of this process.
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
    softmax = make_softmax(training.softmax, corpus.vocab_size, width)
    softmax.initialize(training.seed + 1)
    if settings.init_from is not None:
        words = corpus.words[: corpus.vocab_size]
        load_start(bilm, softmax, words, settings.init_from)
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
    average = Average(bilm, softmax, training, count_steps(training, corpus))
    return Run(bilm, softmax, optimizer, rows, towers, processes, average)


def _train(
    run: Run,
    progress: Progress,
    dev: Optional[Corpus],
    settings: Settings,
    output: Path,
    silent: bool,
) -> Optional[Perplexity]:
    """All steps that are left, and what is written on the way and at the end."""
    training = settings.training
    n_steps = count_steps(training, run.rows.corpus)
    log = Log(output / LOG, progress.step) if run.processes.is_first else None
    log_step, close_logger = open_logger(settings, run.processes.is_first)
    states, losses = progress.states, list(progress.losses)
    started = time.perf_counter() - progress.seconds
    if settings.init_from is not None and dev is not None and progress.step == 0:
        # What the adaptation starts from; the end of the run says what it gained.
        record = _record(run, training, 0, time.perf_counter() - started)
        found = _evaluate(run, training, dev, 0)
        _write(log, {**record, "initial": True, **found.to_dict()})
    bar = _progress_bar(training, progress.step, n_steps, silent)
    shown: Dict[str, str] = {}
    for step in range(progress.step, n_steps):
        batch = run.rows.read()
        done = train_step(run, training, batch, states, step, n_steps)
        _check_finite(done, step + 1, run.rows, batch, output)
        states = done.states
        losses.append(done.loss)
        bar.update(training.tokens_per_step)
        n, last = step + 1, step + 1 == n_steps
        record = _record(run, training, n, time.perf_counter() - started)
        if n % training.log_steps == 0 or last:
            mean = sum(losses) / len(losses)
            losses.clear()
            _write(log, {**record, "loss": mean})
            log_step({**record, "loss": mean})
            shown.update(loss=f"{mean:.3f}", epoch=f"{run.rows.epoch:.2f}")
            bar.set_postfix(shown)
        if dev is not None and n % training.eval_steps == 0 and not last:
            found = _evaluate(run, training, dev, training.eval_tokens)
            _write(log, {**record, **found.to_dict()})
            log_step({**record, **found.to_dict()})
            shown["perplexity"] = f"{found.average:.1f}"
        if n % training.checkpoint_steps == 0 or last:
            run.average.update(n)
            seconds = time.perf_counter() - started
            here = Progress(n, seconds, states, losses)
            save_checkpoint(run, here, settings, output)
    bar.close()
    run.average.apply()
    if run.processes.is_first:
        write_model(run.bilm, run.softmax, output)
    if dev is None:
        close_logger()
        return None
    found = _evaluate(run, training, dev, 0)
    record = _record(run, training, n_steps, time.perf_counter() - started)
    _write(log, {**record, "final": True, **found.to_dict()})
    log_step({**record, **found.to_dict()})
    close_logger()
    return found


def count_steps(settings: TrainingSettings, corpus: Corpus) -> int:
    """Updates of a whole run."""
    n_tokens = settings.max_epochs * len(corpus.tokens)
    if settings.max_tokens is not None:
        n_tokens = min(n_tokens, settings.max_tokens)
    return max(1, int(n_tokens // settings.tokens_per_step))


def _evaluate(
    run: Run, settings: TrainingSettings, corpus: Corpus, max_tokens: int
) -> Perplexity:
    return evaluate(
        run.bilm, run.softmax, corpus, state=settings.state, max_tokens=max_tokens,
        processes=run.processes,
    )  # fmt: skip


def _write(log: Optional[Log], record: Dict[str, Any]) -> None:
    if log is not None:
        log.write(record)


def _record(
    run: Run, settings: TrainingSettings, step: int, seconds: float
) -> Dict[str, Any]:
    """What each line of the log says."""
    return {
        "step": step,
        "tokens": step * settings.tokens_per_step,
        "epoch": round(run.rows.epoch, 4),
        "learn_rate": run.optimizer.param_groups[0]["lr"],
        "seconds": round(seconds, 1),
    }


def _progress_bar(
    settings: TrainingSettings, step: int, n_steps: int, silent: bool
) -> "tqdm[Any]":
    return tqdm(
        total=n_steps * settings.tokens_per_step,
        initial=step * settings.tokens_per_step,
        unit=" tokens", unit_scale=True, disable=silent, desc="Pretraining",
    )  # fmt: skip


def _check_finite(
    done: Step, step: int, rows: Rows, batch: Directions, output: Path
) -> None:
    for what, value in (("loss", done.loss), ("norm of the gradients", done.norm)):
        if math.isfinite(value):
            continue
        dump = output / f"batch-{step}.txt"
        words = rows.corpus.words
        lines = [" ".join(words[i] for i in row) for row in batch.inputs[0].T]
        dump.write_text("\n".join(lines) + "\n", encoding="utf8")
        raise TrainingError(
            Errors.E053.format(
                what=what, value=value, step=step, epoch=f"{rows.epoch:.2f}", dump=dump
            )
        )


@contextmanager
def _explained_out_of_memory(settings: TrainingSettings) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as e:
        # torch has a class of its own for GPUs, but a RuntimeError for CPUs.
        text = str(e)
        if isinstance(e, TrainingError) or not (
            isinstance(e, MemoryError)
            or "out of memory" in text
            or "allocate memory" in text
        ):
            raise
        raise TrainingError(
            Errors.E058.format(
                reason=text.split("\n")[0],
                rows=settings.rows,
                steps=settings.unroll_steps,
                n_samples=settings.softmax.n_samples,
            )  # fmt: skip
        ) from None
