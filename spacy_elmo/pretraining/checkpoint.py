"""Checkpoints: what a stopped run resumes from."""

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any, Dict, Optional

import torch
from spacy.util import dict_to_dot

from ..bilm import LSTMState
from ..bilm.paths import CHECKPOINT
from ..errors import Errors, TrainingError, Warnings, require_same
from ..storage import replacing, sync
from .run import Run

# The one before, should the last be damaged.
PREVIOUS = "checkpoint.previous.pt"

# What may change between a run and the one that resumes it: its length and with it the
# decay of the rate, when it reports, saves and stops, where and how fast it runs, and
# what E053 advises to lower. Not keep_best: the best weights so far were not kept.
FREE: Dict[str, Any] = {
    **dict.fromkeys(
        ("max_tokens", "max_epochs", "average_share", "compile", "eval_steps",
         "eval_tokens", "log_steps", "checkpoint_steps", "checkpoint_minutes",
         "patience", "grad_clip", "device", "precision", "logger"), True
    ),
    "optimizer": {"learn_rate", "decay", "decay_share"},
}  # fmt: skip

# What an optimizer keeps of each parameter.
MOMENTS = {
    "adamw": ("exp_avg", "exp_avg_sq"),
    "adagrad": ("sum",),
}


def save_checkpoint(run: Run, output: Path) -> None:
    """Write a checkpoint to a temporary file and rename it; the one before is kept. It
    holds the rows of all processes: any number of them can resume.

    RAISES (TrainingError): If it cannot be written, for instance on a full disk.
    """
    path, processes = output / CHECKPOINT, run.processes
    positions = processes.concatenate(torch.from_numpy(run.rows.positions.copy()))
    # (2, L, rows, ...) -> (rows of all processes, L, 2, ...)
    states = [processes.concatenate(x.transpose(0, 2)) for x in run.state]
    if not processes.is_first:
        return
    checkpoint = {
        "step": run.step,
        "seconds": run.seconds,
        "losses": run.losses,
        "best": list(run.best),
        "n_worse": run.n_worse,
        "states": states,
        "settings": _identity(run),
        "weights": run.weights.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "mean": run.mean
        and {"begins": run.mean_begins, "weights": run.mean.state_dict()},
        "positions": positions.tolist(),
    }
    try:
        with replacing(path) as temporary:
            torch.save(checkpoint, temporary)
            sync(temporary)
            if path.is_file():
                os.replace(path, output / PREVIOUS)
    except (OSError, RuntimeError) as e:  # torch has RuntimeError for a full disk
        raise TrainingError(Errors.E115.format(path=path, reason=e)) from None


def load_checkpoint(run: Run, output: Path) -> None:
    """Set a run to where an earlier one in the same folder was stopped, if there was
    one.

    RAISES (TrainingError): If there are checkpoints, but none that can be read, or
        if the run that made it had other settings.
    """
    damaged: Optional[str] = None
    for path in (output / CHECKPOINT, output / PREVIOUS):
        if not path.is_file():
            continue
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            then, now = saved["settings"], _identity(run)
            both = {key: now[key] for key in sorted(now.keys() & then.keys())}
            require_same(path, then, both, TrainingError)
            _restore(saved, run)
        except TrainingError:
            raise
        except Exception as e:  # nearly anything, on a damaged file
            reason = f"{type(e).__name__}: {e}"
            damaged = damaged or Errors.E056.format(path=path, reason=reason)
            continue
        if damaged is not None:
            used = Warnings.W003.format(problem=damaged, path=path, step=run.step)
            warnings.warn(used, stacklevel=2)
        return
    if damaged is not None:
        raise TrainingError(damaged)


def _restore(saved: Dict[str, Any], run: Run) -> None:
    """RAISES (Exception): Of any kind, if something is missing or of a wrong type."""
    run.weights.load_state_dict(saved["weights"])
    groups = run.optimizer.state_dict()["param_groups"]  # of the settings
    run.optimizer.load_state_dict({**saved["optimizer"], "param_groups": groups})
    moments = MOMENTS[run.settings.training.optimizer.name]
    for param in run.weights.parameters():
        wanted = {"step": (), **dict.fromkeys(moments, tuple(param.shape))}
        state = run.optimizer.state[param]
        found = {name: tuple(x.shape) for name, x in state.items()}
        if found != wanted:
            raise ValueError(f"optimizer with {found} instead of {wanted}")
    run.rows.load_positions(saved["positions"])
    run.rows.look_ahead()  # fails at impossible places
    mean = saved["mean"]
    # A mean that begins elsewhere begins anew.
    begins = None if mean is None else mean.get("begins")
    if run.mean is not None and begins == run.mean_begins:
        run.mean.load_state_dict(mean["weights"])
    device, mine = run.processes.device, run.rows.mine
    h, c = (x[mine.start : mine.stop].transpose(0, 2) for x in saved["states"])
    if int(saved["step"]) < 0 or [h.shape, c.shape] != [x.shape for x in run.state]:
        raise ValueError(f"step {saved['step']}, states of {tuple(h.shape)}")
    run.state = LSTMState(h.to(device), c.to(device))
    run.losses = [float(loss) for loss in saved["losses"]]
    run.step, run.seconds = int(saved["step"]), float(saved["seconds"])
    step, perplexity = saved["best"]
    run.best = int(step), float(perplexity)
    run.n_worse = int(saved.get("n_worse", 0))  # new after 0.2.1


def _identity(run: Run) -> Dict[str, Any]:
    """What a checkpoint has to share with the run that resumes from it, by name."""
    corpus, settings = run.rows.corpus, run.settings
    training = settings.training.model_dump(exclude=FREE)
    words, paths = "\n".join(corpus.words[: corpus.vocab_size]), settings.paths
    # The best so far is the best on this text (load_corpora compares it).
    dev = {
        "paths.dev": [Path(path).name for path in paths.dev],
        "training.eval_tokens": settings.training.eval_tokens,
    }
    return {
        "paths.init_from": paths.init_from and Path(paths.init_from).name,
        **(dev if settings.training.compares_evaluations else {}),
        **dict_to_dot({"model": settings.options.to_dict(), "training": training}),
        "corpus.weights": corpus.weights,
        "the text's tokens": len(corpus.tokens),
        "the text's documents": corpus.n_documents,
        "the text's vocabulary": corpus.vocab_size,
        "the vocabulary's words": hashlib.sha256(words.encode()).hexdigest(),
    }
