"""What a killed run goes on from."""

import os
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from torch import nn

from ..bilm import BiLM
from ..bilm.lstm import LSTMState
from ..errors import Errors, TrainingError, Warnings
from ..storage import replacing
from .average import Average
from .config import Settings
from .distributed import Processes
from .language_model import AnySoftmax
from .towers import States
from .windows import Rows

CHECKPOINT = "checkpoint.pt"
# The one before, should the last be damaged.
PREVIOUS = "checkpoint.previous.pt"

# What may change between a run and the one that goes on from it: its length, how
# often it reports, and what E053 advises to lower.
FREE = ("max_tokens", "max_epochs", "average_share", "compile", "eval_steps",
        "eval_tokens", "log_steps", "checkpoint_steps", "grad_clip", "precision",
        "accumulate_gradient")  # fmt: skip
FREE_OPTIMIZER = ("learn_rate", "decay", "decay_share")


class Run(NamedTuple):
    """All that changes in place while a biLM is trained, and the processes that do
    it. `towers` are those of `bilm`, alone or in DistributedDataParallel.
    """

    bilm: BiLM
    softmax: AnySoftmax
    optimizer: torch.optim.Optimizer
    rows: Rows
    towers: nn.Module
    processes: Processes
    average: Average


class Progress(NamedTuple):
    """Where a run is.

    step (int): Updates done.
    seconds (float): Time spent.
    states (States): The state that the next window starts from; None for zeros.
    losses (List[float]): Of the steps since the last line of the log.
    """

    step: int = 0
    seconds: float = 0.0
    states: Optional[States] = None
    losses: List[float] = []


def save_checkpoint(
    run: Run, progress: Progress, settings: Settings, output: Path
) -> None:
    """Write a checkpoint beside its place and rename it; the last one stays as the
    one before. It holds the rows of all processes: any number of them can go on.

    RAISES (TrainingError): If it cannot be written, for instance on a full disk.
    """
    processes = run.processes
    positions = processes.concatenate(run.rows.positions_tensor(processes.device))
    states = progress.states
    if states is not None:
        states = [
            [LSTMState(*(processes.concatenate(x) for x in state)) for state in layers]
            for layers in states
        ]
    if not processes.is_first:
        return
    checkpoint = {
        "step": progress.step,
        "seconds": progress.seconds,
        "losses": list(progress.losses),
        "settings": _identity(settings, run.rows),
        "bilm": run.bilm.state_dict(),
        "softmax": run.softmax.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "average": _average_state(run.average),
        "rows": {"positions": positions.tolist()},
        "states": None if states is None else [[tuple(s) for s in d] for d in states],
    }
    path = output / CHECKPOINT
    try:
        with replacing(path) as temporary:
            torch.save(checkpoint, temporary)
            _flush(temporary)
            if path.is_file():
                os.replace(path, output / PREVIOUS)
    except (OSError, RuntimeError) as e:  # torch has RuntimeError for a full disk
        raise TrainingError(Errors.E057.format(path=path, reason=e)) from None


def load_checkpoint(run: Run, settings: Settings, output: Path) -> Progress:
    """Set a run to where an earlier one in the same folder was stopped.

    run (Run): As it starts; changed in place.
    settings (Settings): The config.
    output (Path): The folder.
    RETURNS (Progress): Where it is: at the start, if there is no checkpoint.
    RAISES (TrainingError): If there are checkpoints, but none that can be read, or
        if the run that made it had other settings.
    """
    if run.processes.is_first:
        for left in output.glob(f".{CHECKPOINT}.*"):
            left.unlink()  # by a run that was killed while it wrote
    run.processes.wait()
    damaged: Optional[str] = None
    for path in (output / CHECKPOINT, output / PREVIOUS):
        if not path.is_file():
            continue
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            step = saved["step"]
        except Exception as e:  # torch raises nearly anything on damaged files
            damaged = damaged or Errors.E056.format(path=path, reason=e)
            continue
        if damaged is not None:
            used = Warnings.W003.format(problem=damaged, path=path, step=step)
            warnings.warn(used, stacklevel=2)
        return _restore(run, settings, saved, path)
    if damaged is not None:
        raise TrainingError(damaged)
    return Progress()


def _restore(
    run: Run, settings: Settings, saved: Dict[str, Any], path: Path
) -> Progress:
    different = _differences(saved["settings"], _identity(settings, run.rows))
    if different:
        what = ", ".join(name.replace("corpus.", "the text's ") for name in different)
        raise TrainingError(Errors.E055.format(path=path, what=what))
    try:
        run.bilm.load_state_dict(saved["bilm"])
        run.softmax.load_state_dict(saved["softmax"])
        run.optimizer.load_state_dict(saved["optimizer"])
        run.rows.load_positions(saved["rows"]["positions"])
        mean, averaged = run.average.mean, saved.get("average")
        # Of a run of another length, the mean begins anew.
        if mean is not None and averaged and averaged["first"] == run.average.first:
            mean.load_state_dict(averaged["mean"])
    except (RuntimeError, ValueError, KeyError) as e:
        raise TrainingError(Errors.E056.format(path=path, reason=e)) from None
    states = saved["states"]
    if states is not None:
        device, rows = run.processes.device, run.rows.rows
        mine = slice(rows.start, rows.stop)
        states = [
            [LSTMState(h[mine].to(device), c[mine].to(device)) for h, c in layers]
            for layers in states
        ]
    return Progress(saved["step"], saved["seconds"], states, saved.get("losses", []))


def _average_state(average: Average) -> Optional[Dict[str, Any]]:
    if average.mean is None:
        return None
    return {"first": average.first, "mean": average.mean.state_dict()}


def _identity(settings: Settings, rows: Rows) -> Dict[str, Any]:
    """What a checkpoint has to share with the run that goes on from it."""
    training = asdict(settings.training)
    optimizer = training["optimizer"]
    training["optimizer"] = {
        k: v for k, v in optimizer.items() if k not in FREE_OPTIMIZER
    }
    kept = {f"training.{k}": v for k, v in training.items() if k not in FREE}
    corpus = rows.corpus
    text = {
        "tokens": len(corpus.tokens),
        "documents": corpus.n_documents,
        "vocabulary": corpus.vocab_size,
    }
    return {"model": settings.options.to_dict(), **kept, "corpus": text}


def _differences(saved: Dict[str, Any], wanted: Dict[str, Any]) -> List[str]:
    """Names of what differs. What only one of both has is no difference: a setting
    that one version of this module knows and the other does not.
    """
    found: List[str] = []
    for name in wanted.keys() & saved.keys():
        if isinstance(wanted[name], dict) and isinstance(saved[name], dict):
            found.extend(f"{name}.{k}" for k in _differences(saved[name], wanted[name]))
        elif wanted[name] != saved[name]:
            found.append(name)
    return sorted(found)


def _flush(path: Path) -> None:
    """To the disk itself: else a power failure could leave an empty file behind the
    new name.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
