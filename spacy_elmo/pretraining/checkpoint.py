"""What a killed run goes on from."""

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any, Dict, Optional

import torch
from spacy.util import dict_to_dot

from ..bilm.lstm import LSTMState
from ..errors import Errors, TrainingError, Warnings
from ..storage import replacing
from .run import Run

CHECKPOINT = "checkpoint.pt"
# The one before, should the last be damaged.
PREVIOUS = "checkpoint.previous.pt"
# The weights of the evaluation with the lowest perplexity.
BEST = "best.pt"

# What may change between a run and the one that goes on from it: its length, how
# often it reports, and what E053 advises to lower.
FREE: Dict[str, Any] = {
    **dict.fromkeys(
        ("max_tokens", "max_epochs", "average_share", "compile", "eval_steps",
         "eval_tokens", "log_steps", "checkpoint_steps", "checkpoint_minutes",
         "keep_best", "patience", "grad_clip", "precision", "logger"), True
    ),
    "optimizer": {"learn_rate", "decay", "decay_share"},
}  # fmt: skip


def save_checkpoint(run: Run, output: Path) -> None:
    """Write a checkpoint beside its place and rename it; the last one stays as the
    one before. It holds the rows of all processes: any number of them can go on.

    RAISES (TrainingError): If it cannot be written, for instance on a full disk.
    """
    processes = run.processes
    positions = processes.concatenate(torch.from_numpy(run.rows.positions.copy()))
    states = [
        [tuple(processes.concatenate(x) for x in state) for state in layers]
        for layers in run.states or ()
    ]
    if not processes.is_first:
        return
    checkpoint = {
        "step": run.step,
        "seconds": run.seconds,
        "losses": run.losses,
        "best": list(run.best),
        "states": states or None,
        "settings": _identity(run),
        "weights": run.weights.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "mean": run.mean and {"n_steps": run.n_steps, "weights": run.mean.state_dict()},
        "positions": positions.tolist(),
    }
    _write(checkpoint, output / CHECKPOINT, previous=output / PREVIOUS)


def load_checkpoint(run: Run, output: Path) -> None:
    """Set a run to where an earlier one in the same folder was stopped.

    run (Run): As it starts; changed in place.
    output (Path): The folder. Without a checkpoint the run stays as it is.
    RAISES (TrainingError): If there are checkpoints, but none that can be read, or
        if the run that made it had other settings.
    """
    damaged: Optional[str] = None
    for path in (output / CHECKPOINT, output / PREVIOUS):
        if not path.is_file():
            continue
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            _check_settings(saved["settings"], run, path)
            _restore(saved, run)
        except TrainingError:
            raise
        except Exception as e:  # nearly anything, on a damaged file
            damaged = damaged or _unreadable(path, e)
            continue
        if damaged is not None:
            used = Warnings.W003.format(problem=damaged, path=path, step=run.step)
            warnings.warn(used, stacklevel=2)
        return
    if damaged is not None:
        raise TrainingError(damaged)


def save_best(run: Run, output: Path) -> None:
    """Keep the weights as they are, as those of the best evaluation."""
    _write({"weights": run.weights.state_dict()}, output / BEST)


def load_best(run: Run, output: Path) -> None:
    """Set the weights to those of the best evaluation.

    RAISES (TrainingError): If they cannot be read.
    """
    path = output / BEST
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        run.weights.load_state_dict(saved["weights"])
    except Exception as e:  # nearly anything, on a damaged file
        raise TrainingError(_unreadable(path, e)) from None


def _restore(saved: Dict[str, Any], run: Run) -> None:
    """RAISES (Exception): Of any kind, if something is missing or of a wrong type."""
    run.weights.load_state_dict(saved["weights"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.rows.load_positions(saved["positions"])
    mean = saved["mean"]
    # Of a run of another length, the mean begins anew.
    if run.mean is not None and mean is not None and mean["n_steps"] == run.n_steps:
        run.mean.load_state_dict(mean["weights"])
    device, mine = run.processes.device, run.rows.mine
    run.states = saved["states"] and [
        [
            LSTMState(*(x[mine.start : mine.stop].to(device) for x in state))
            for state in layers
        ]
        for layers in saved["states"]
    ]
    run.losses = [float(loss) for loss in saved["losses"]]
    run.step, run.seconds = int(saved["step"]), float(saved["seconds"])
    step, perplexity = saved.get("best", (0, math.inf))
    run.best = int(step), float(perplexity)


def _check_settings(saved: Dict[str, Any], run: Run, path: Path) -> None:
    """RAISES (TrainingError): If a setting that both know differs."""
    before, now = dict_to_dot(saved), _identity(run)
    different = [k for k in sorted(now) if k in before and before[k] != now[k]]
    if different:
        raise TrainingError(Errors.E110.format(path=path, what=", ".join(different)))


def _identity(run: Run) -> Dict[str, Any]:
    """What a checkpoint has to share with the run that goes on from it, by name."""
    corpus, settings = run.rows.corpus, run.settings
    model = json.loads(settings.options.to_json())
    training = settings.training.model_dump(exclude=FREE)
    return {
        **dict_to_dot({"model": model, "training": training}),
        "corpus.weights": corpus.weights,
        "the text's tokens": len(corpus.tokens),
        "the text's documents": corpus.n_documents,
        "the text's vocabulary": corpus.vocab_size,
    }


def _unreadable(path: Path, error: Exception) -> str:
    return Errors.E056.format(path=path, reason=f"{type(error).__name__}: {error}")


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
        raise TrainingError(Errors.E115.format(path=path, reason=e)) from None
