"""Where a run reports: log.jsonl, and one of spaCy's loggers ([training.logger])."""

import json
import math
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from spacy.util import get_lang_class, registry
from thinc.api import Config

from ..errors import CorpusError, Errors, TrainingError, unusable
from ..storage import replacing
from .config import Settings

LOG = "log.jsonl"


def read_log(path: Path) -> List[Dict[str, Any]]:
    """Read a log.jsonl, or the one in a folder. Incomplete lines, of runs that were
    killed, are skipped.

    RAISES (CorpusError): If it is no such log, or has nothing to show yet.
    """
    file = path / LOG if path.is_dir() else path
    if not file.is_file():
        raise unusable(file, "there is no such file")
    records = [record for _, record in _records(file) if "tokens" in record]
    if not any("loss" in r or "average" in r for r in records):
        raise unusable(file, "has no losses and no perplexities of a pretraining run")
    return records


class Log:
    """The curve of a run: one JSON object per line, each with its "step".

    settings (Settings): The config. Its [training.logger] is any that `spacy train`
        takes: it sees the last loss as that of a component "bilm", and the last
        perplexity of held-out text as the score, which is 0 before there is one.
    folder (Path): Has log.jsonl. What an earlier run wrote is kept, but for the lines
        after `step` and the closing one ("final"), which are written again.
    step (int): The step from which the run resumes; 0 begins a log.
    n_steps (int): Of the whole run.
    RAISES (CorpusError): If there is no such logger, or if it cannot be set up.
    """

    def __init__(self, settings: Settings, folder: Path, step: int, n_steps: int):
        self.path = folder / LOG
        goes_on = step > 0 and self.path.is_file()
        kept = "".join(_kept_lines(self.path, step)) if goes_on else ""
        with replacing(self.path) as temporary:
            temporary.write_text(kept, encoding="utf8")
        self._last = {"loss": 0.0, "average": 0.0}
        self._log_step, self.close = _set_up(settings, n_steps)

    def write(self, record: Dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as e:
            problem = Errors.E115.format(path=self.path, reason=e)
            raise TrainingError(problem) from None
        for name in self._last:
            # Loggers that write JSON take finite numbers alone.
            if math.isfinite(record.get(name, math.nan)):
                self._last[name] = record[name]
        self._log_step(_to_info({**record, **self._last}))


def _kept_lines(path: Path, step: int) -> Iterator[str]:
    for line, record in _records(path):
        if record.get("step", math.inf) <= step and not record.get("final"):
            yield line + "\n"


def _records(path: Path) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """The lines of a log, and what they say. Not by srsly: a run that has diverged has
    an infinite perplexity.
    """
    for line in path.read_text(encoding="utf8", errors="replace").splitlines():
        with suppress(ValueError):  # a run was killed within a line
            record = json.loads(line)
            if isinstance(record, dict):
                yield line, record


def find_logger(settings: Settings) -> Any:
    """The logger that the config names, not yet set up; None if it names none.

    RAISES (CorpusError): If there is no such logger.
    """
    config: Dict[str, Any] = {"logger": settings.training.logger}
    try:
        return registry.resolve(config)["logger"]
    except Exception as e:  # whatever a logger raises
        raise _unusable_logger(e) from None


def _unusable_logger(e: Exception) -> CorpusError:
    return unusable("[training.logger]", f"{type(e).__name__}: {e}")


def _set_up(settings: Settings, n_steps: int) -> Any:
    setup = find_logger(settings)
    if setup is None:
        return lambda info: None, lambda: None
    try:
        # Loggers ask a pipeline for its config, and for nothing else.
        nlp = get_lang_class("xx")()
        # The perplexity is the score. spaCy prints those with weights in percent.
        training = {
            "eval_frequency": settings.training.log_steps, "max_steps": n_steps,
            "score_weights": {},
        }  # fmt: skip
        nlp.config = Config(settings.config).merge({"training": training})
        return setup(nlp, sys.stdout, sys.stderr)
    except Exception as e:  # whatever a logger raises
        raise _unusable_logger(e) from None


def _to_info(record: Dict[str, Any]) -> Dict[str, Any]:
    """A record of log.jsonl as `spacy train` gives it to a logger."""
    names = ("forward", "backward", "bits_per_character")
    found = {name: record.get(name, math.nan) for name in names}
    scores = {name: x for name, x in found.items() if math.isfinite(x)}
    score = record["average"]
    return {
        "epoch": int(record["epoch"]), "step": record["step"],
        "score": score, "other_scores": {**scores, "perplexity": score},
        "losses": {"bilm": record["loss"]}, "checkpoints": [],
        "seconds": int(record["seconds"]), "words": record["tokens"],
    }  # fmt: skip
