"""The loop of a run: updates, evaluations, checkpoints and the end."""

import math
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Optional

import torch
from tqdm import tqdm
from wasabi import msg

from ..errors import Errors, TrainingError, Warnings
from ..processes import STOPS, handling
from .checkpoint import save_checkpoint
from .corpus import BATCH, Corpus
from .evaluation import Perplexity, evaluate_files
from .initialization import load_start
from .language_model import write_model
from .loggers import Log
from .run import Run, learn_rate, train_step
from .windows import Window

# Times the best perplexity.
MUCH_WORSE = 2.0


@dataclass
class Loop:
    """A run from where it is to its end, and what is written on the way.

    dev (Dict[str, Corpus]): Held-out text by its file.
    output (Path): Receives checkpoints and weights.
    log (Log): None in all processes but the first.
    """

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
