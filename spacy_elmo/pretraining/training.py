"""The training loop (Peters et al. 2018, section 3.4)."""

import ctypes
import importlib.util
import math
import os
import shutil
import signal
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Optional

import torch
from thinc.api import Config
from tqdm import tqdm
from wasabi import msg

from ..bilm.kernels import use_fusion
from ..bilm.paths import (
    CHECKPOINT,
    OPTIONS_FILE,
    OPTIONS_NAMES,
    WEIGHTS_FILE,
    WEIGHTS_NAMES,
)
from ..bilm.precision import choose_precision
from ..bilm.tuning import MIN_STEPS_TO_COMPILE
from ..errors import CorpusError, Errors, TrainingError, Warnings
from ..processes import STOPS, handling
from ..storage import beside, hold, remove_leftovers, replacing
from ..weights import resolve
from .checkpoint import load_checkpoint, save_checkpoint
from .config import Settings, read_config
from .corpus import BATCH, TRAIN_CACHE, Corpus, load_corpora
from .corpus_files import key_of
from .distributed import Processes, joined_processes
from .evaluation import Perplexity, evaluate_files
from .initialization import find_start, load_start
from .language_model import write_model
from .loggers import LOG, Log, find_logger
from .run import Run, count_steps, learn_rate, start_run, train_step
from .vocabulary import VOCABULARY, write_vocabulary
from .windows import Window

CONFIG_FILE = "config.cfg"
RUN_FILES = (CONFIG_FILE, VOCABULARY, LOG)  # beside those of the model
LOCK_FILE = ".pretrain.lock"
# Of malloc.h in glibc.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# With a larger share of unknown words, a perplexity says little.
MANY_UNKNOWN = 0.5
# Times the best perplexity.
MUCH_WORSE = 2.0


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
        return _Training(run, dev, output, log).train()


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


def keep_freed_memory() -> None:
    """Let glibc keep what this process frees. Each step needs tensors of the same sizes
    as the last: to return their pages and to get them anew is 4 to 12 % of a step in
    float32. Other libraries are left as they are.
    """
    with suppress(AttributeError, OSError, TypeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(M_MMAP_THRESHOLD, 1 << 30)
        set_option(M_TRIM_THRESHOLD, (1 << 31) - 1)


def prepare_run(settings: Settings, corpus: Corpus, processes: Processes) -> Run:
    """A run before its first update. Where precision and compile are "auto", they are
    chosen here.
    """
    # oneDNN keeps a compiled product for each shape, 1024 by default. Each batch has
    # another number of distinct words: in bfloat16 that would grow by gigabytes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    keep_freed_memory()
    training, device = settings.training, processes.device
    precision = choose_precision(training.precision, device, among=("bfloat16",))
    fuses = training.compile
    if fuses == "auto":
        is_long = count_steps(training, corpus) >= MIN_STEPS_TO_COMPILE
        fuses = is_long and _has_compiler(device)
    use_fusion(fuses)
    training = training.model_copy(update={"precision": precision, "compile": fuses})
    settings = settings.model_copy(update={"training": training})
    return start_run(settings, corpus, processes)


@dataclass
class _Training:
    """A run from where it is to its end, and what is written on the way."""

    run: Run
    dev: Dict[str, Corpus]
    output: Path
    log: Optional[Log]
    shown: Dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = self.run.settings.training
        self.saved = time.perf_counter()
        self.started = self.saved - self.run.seconds

    def train(self) -> Optional[Perplexity]:
        run = self.run
        if run.settings.paths.init_from and self.dev and run.step == 0:
            # What the adaptation starts from; the end of the run says what it gained.
            self._write({"initial": True, **self._perplexity(0).to_dict()})
            if self.settings.keep_best:
                self._evaluate()
        per_step = self.settings.tokens_per_step
        bar = tqdm(
            total=run.n_steps * per_step,
            initial=run.step * per_step,
            unit=" tokens", unit_scale=True, desc="Pretraining",
            disable=self.log is None,
        )  # fmt: skip
        with bar, _noticed_signals() as signals:
            while run.step < run.n_steps and not self._is_out_of_patience():
                self._step(signals)
                if self._is_due(self.settings.log_steps):
                    self._report()
                if self.dev and self._is_due(self.settings.eval_steps):
                    self._evaluate()
                self._average()
                self._save_or_stop(signals)
                bar.update(per_step)
                bar.set_postfix(self.shown, refresh=False)
        return self._finish()

    def _step(self, signals: List[int]) -> None:
        batch = self.run.rows.read()
        try:
            loss, norm = train_step(self.run, batch)
        except Exception:
            if signals:  # Ctrl+C reaches the compiler that torch has started, too.
                raise TrainingError(Errors.E116) from None
            raise
        for what, value in (("loss", loss), ("norm of the gradients", norm)):
            if not math.isfinite(value):
                self._stop(what, value, batch)
        self.run.losses.append(loss)
        self.run.seconds = time.perf_counter() - self.started

    def _report(self) -> None:
        losses = self.run.losses
        mean = sum(losses) / len(losses)
        losses.clear()
        self._write({"loss": mean})
        self.shown.update(loss=f"{mean:.3f}", epoch=f"{self.run.rows.epoch:.2f}")

    def _evaluate(self) -> None:
        run, keep_best = self.run, self.settings.keep_best
        if run.step == run.n_steps and not keep_best:
            return  # All of the text is read at the end.
        found = self._perplexity(self.settings.eval_tokens)
        self._write(found.to_dict())
        self.shown["perplexity"] = f"{found.average:.1f}"
        best_step, best = run.best
        if found.average > MUCH_WORSE * best and run.processes.is_first:
            values = {"found": found.average, "best": best, "best_step": best_step}
            msg.warn(Warnings.W014.format(step=run.step, **values))
        # The first is the best until then, even if it is infinite.
        if found.average < best or math.isinf(best):
            run.best, run.n_worse = (run.step, found.average), 0
            if keep_best and run.processes.is_first:
                write_model(run.bilm, run.softmax, self.output)
        else:
            run.n_worse += 1

    def _average(self) -> None:
        run = self.run
        if run.mean is not None and run.is_averaged:
            run.mean.update_parameters(run.weights)

    def _save_or_stop(self, signals: List[int]) -> None:
        run, settings = self.run, self.settings
        overdue = time.perf_counter() - self.saved > 60 * settings.checkpoint_minutes
        # If one process has to save or stop, all do so at this step.
        wishes = torch.tensor([bool(signals), overdue and run.processes.is_first])
        wishes = wishes.to(run.processes.device, torch.int64)
        stop, save = run.processes.sum(wishes).tolist()
        due = self._is_due(settings.checkpoint_steps)
        if due or stop or save or self._is_out_of_patience():
            save_checkpoint(run, self.output)
            self.saved = time.perf_counter()
        if stop:
            problem = Errors.E058.format(step=run.step, n_steps=run.n_steps)
            raise TrainingError(problem)

    def _finish(self) -> Optional[Perplexity]:
        run = self.run
        if run.mean is not None and int(run.mean.n_averaged):
            run.weights.load_state_dict(run.mean.module.state_dict())
        if self.settings.keep_best:
            if math.isinf(run.best[1]):  # lost after the last update
                self._evaluate()
            run.processes.wait()  # for the first one, which has written it
            words = run.rows.corpus.words[: run.softmax.vocab_size]
            load_start(run.bilm, run.softmax, words, self.output)
        elif run.processes.is_first:
            write_model(run.bilm, run.softmax, self.output)
        found = self._perplexity(0) if self.dev else None
        if found is not None:
            self._write({"final": True, **found.to_dict()})
        if self.log is not None:
            self.log.close()
        return found

    def _is_due(self, every: int) -> bool:
        return self.run.step % every == 0 or self.run.step == self.run.n_steps

    def _is_out_of_patience(self) -> bool:
        patience = self.settings.patience
        return patience is not None and self.run.n_worse >= patience

    def _perplexity(self, max_tokens: int) -> Perplexity:
        run = self.run
        return evaluate_files(
            run.bilm, run.softmax, self.dev, state=self.settings.state,
            max_tokens=max_tokens, processes=run.processes,
        )  # fmt: skip

    def _write(self, found: Dict[str, Any]) -> None:
        """Write a line of the log: where the run is, and what was found."""
        run = self.run
        if self.log is not None:
            where = {
                "step": run.step,
                "tokens": run.step * self.settings.tokens_per_step,
                "epoch": round(run.rows.epoch, 4),
                "learn_rate": learn_rate(
                    self.settings.optimizer, max(0, run.step - 1), run.n_steps
                ),
                "seconds": round(time.perf_counter() - self.started, 1),
            }
            self.log.write({**where, **found})

    def _stop(self, what: str, value: float, batch: Window) -> NoReturn:
        step, rows = self.run.step, self.run.rows
        dump = self.output / BATCH.format(step)
        words = rows.corpus.words
        lines = [" ".join(words[i] for i in row) for row in batch.inputs[0].T]
        dump.write_text("\n".join(lines) + "\n", encoding="utf8")
        where = {"step": step, "epoch": f"{rows.epoch:.2f}", "dump": dump}
        raise TrainingError(Errors.E053.format(what=what, value=value, **where))


@contextmanager
def _noticed_signals() -> Iterator[List[int]]:
    """The SIGINT and SIGTERM that came while the block runs. The second of a kind
    ends the process at once. Only the main thread is asked.
    """
    noticed: List[int] = []

    def notice(number: int, frame: Any) -> None:
        noticed.append(number)
        signal.signal(number, before[number])

    is_main = threading.current_thread() is threading.main_thread()
    with handling(STOPS if is_main else (), notice) as before:
        yield noticed


def _has_compiler(device: torch.device) -> bool:
    """Whether torch.compile has what it needs."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    named = os.environ.get("CXX", "g++")
    return any(shutil.which(compiler) for compiler in (named, "clang++"))


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
