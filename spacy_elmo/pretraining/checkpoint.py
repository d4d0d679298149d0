"""What a killed run goes on from."""

import math
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import torch

from ..bilm.lstm import LSTMState
from ..errors import Errors, TrainingError, Warnings
from ..storage import replacing
from .config import Settings
from .run import Run
from .towers import States

CHECKPOINT = "checkpoint.pt"
# The one before, should the last be damaged.
PREVIOUS = "checkpoint.previous.pt"
# The weights of the evaluation with the lowest perplexity.
BEST = "best.pt"

# What may change between a run and the one that goes on from it: its length, how
# often it reports, and what E053 advises to lower.
FREE = {"max_tokens", "max_epochs", "average_share", "compile", "eval_steps",
        "eval_tokens", "log_steps", "checkpoint_steps", "checkpoint_minutes",
        "keep_best", "patience", "grad_clip", "precision", "accumulate_gradient",
        "logger"}  # fmt: skip
FREE_OPTIMIZER = {"learn_rate", "decay", "decay_share"}


@dataclass
class Progress:
    """Where a run is.

    step: Updates done.
    seconds: Time spent.
    states: The state that the next window starts from; None for zeros.
    losses: Of the steps since the last line of the log.
    """

    step: int = 0
    seconds: float = 0.0
    states: Optional[States] = None
    losses: List[float] = field(default_factory=list)


def save_checkpoint(
    run: Run, progress: Progress, settings: Settings, output: Path
) -> None:
    """Write a checkpoint beside its place and rename it; the last one stays as the
    one before. It holds the rows of all processes: any number of them can go on.

    RAISES (TrainingError): If it cannot be written, for instance on a full disk.
    """
    processes = run.processes
    positions = processes.concatenate(run.rows.positions_tensor(processes.device))
    states: Any = progress.states and [
        [LSTMState(*(processes.concatenate(x) for x in state)) for state in layers]
        for layers in progress.states
    ]
    if not processes.is_first:
        return
    mean = run.mean and {"n_steps": run.n_steps, "weights": run.mean.state_dict()}
    checkpoint = {
        "step": progress.step,
        "seconds": progress.seconds,
        "losses": progress.losses,
        "states": states and [[tuple(s) for s in layers] for layers in states],
        "settings": _identity(settings, run),
        "weights": run.weights.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "mean": mean,
        "positions": positions.tolist(),
    }
    _write(checkpoint, output / CHECKPOINT, previous=output / PREVIOUS)


def load_checkpoint(run: Run, settings: Settings, output: Path) -> Progress:
    """Set a run to where an earlier one in the same folder was stopped.

    run (Run): As it starts; changed in place.
    settings (Settings): The config.
    output (Path): The folder.
    RETURNS (Progress): Where it is: at the start, if there is no checkpoint.
    RAISES (TrainingError): If there are checkpoints, but none that can be read, or
        if the run that made it had other settings.
    """
    damaged: Optional[str] = None
    for path in (output / CHECKPOINT, output / PREVIOUS):
        if not path.is_file():
            continue
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            different = _differences(saved["settings"], _identity(settings, run))
            if not different:
                progress = _restore(run, saved)
        except Exception as e:  # nearly anything, on a damaged file
            reason = f"{type(e).__name__}: {e}"
            damaged = damaged or Errors.E056.format(path=path, reason=reason)
            continue
        if different:
            what = ", ".join(different)
            raise TrainingError(Errors.E055.format(path=path, what=what))
        if damaged is not None:
            used = Warnings.W003.format(problem=damaged, path=path, step=progress.step)
            warnings.warn(used, stacklevel=2)
        return progress
    if damaged is not None:
        raise TrainingError(damaged)
    return Progress()


def _restore(run: Run, saved: Dict[str, Any]) -> Progress:
    """RAISES (Exception): Of any kind, if something is missing or of a wrong type."""
    run.weights.load_state_dict(saved["weights"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.rows.load_positions(saved["positions"])
    mean = saved["mean"]
    # Of a run of another length, the mean begins anew.
    if run.mean is not None and mean is not None and mean["n_steps"] == run.n_steps:
        run.mean.load_state_dict(mean["weights"])
    device, rows = run.processes.device, run.rows.rows
    mine = slice(rows.start, rows.stop)
    states = saved["states"] and [
        [LSTMState(h[mine].to(device), c[mine].to(device)) for h, c in layers]
        for layers in saved["states"]
    ]
    losses = [float(loss) for loss in saved["losses"]]
    return Progress(int(saved["step"]), float(saved["seconds"]), states, losses)


def _identity(settings: Settings, run: Run) -> Dict[str, Any]:
    """What a checkpoint has to share with the run that goes on from it, by name."""
    corpus, training = run.rows.corpus, settings.training
    model = settings.options.to_dict()
    return {
        **{f"model.lstm.{k}": v for k, v in model["lstm"].items()},
        **{f"model.char_cnn.{k}": v for k, v in model["char_cnn"].items()},
        **{f"training.{k}": v for k, v in training.model_dump(exclude=FREE).items()},
        "training.optimizer": training.optimizer.model_dump(exclude=FREE_OPTIMIZER),
        "corpus.weights": corpus.weights,
        "the text's tokens": len(corpus.tokens),
        "the text's documents": corpus.n_documents,
        "the text's vocabulary": corpus.vocab_size,
    }


def _differences(saved: Dict[str, Any], wanted: Dict[str, Any]) -> List[str]:
    """Names of what differs, a setting that only one of both knows apart."""
    names = wanted.keys() & saved.keys()
    return sorted(name for name in names if saved[name] != wanted[name])


class Best(NamedTuple):
    """The evaluation with the lowest perplexity, and its step."""

    step: int = 0
    perplexity: float = math.inf


def save_best(run: Run, best: Best, output: Path) -> None:
    """Keep the weights as they are, as those of the best evaluation."""
    saved = {**best._asdict(), "weights": run.weights.state_dict()}
    _write(saved, output / BEST)


def load_best(run: Run, output: Path, *, only_read: bool = False) -> Best:
    """Set the weights to those of the best evaluation, if there is one.

    run (Run): Changed in place, unless `only_read`.
    RAISES (TrainingError): If they cannot be read.
    """
    path = output / BEST
    if not path.is_file():
        return Best()
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        if not only_read:
            run.weights.load_state_dict(saved["weights"])
        return Best(int(saved["step"]), float(saved["perplexity"]))
    except Exception as e:  # nearly anything, on a damaged file
        reason = f"{type(e).__name__}: {e}"
        raise TrainingError(Errors.E056.format(path=path, reason=reason)) from None


def _write(saved: Dict[str, Any], path: Path, previous: Optional[Path] = None) -> None:
    """Write a file beside its place and rename it. What was there becomes `previous`.

    RAISES (TrainingError): If it cannot be written, for instance on a full disk.
    """
    try:
        with replacing(path) as temporary:
            torch.save(saved, temporary)
            # To the disk itself: else a power failure could leave an empty file
            # behind the new name.
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            if previous is not None and path.is_file():
                os.replace(path, previous)
    except (OSError, RuntimeError) as e:  # torch has RuntimeError for a full disk
        raise TrainingError(Errors.E057.format(path=path, reason=e)) from None
