"""python -m spacy_elmo.recipe.steps PROJECT: run the steps that are not done yet."""

import signal
import sys
from pathlib import Path

import srsly
from spacy.cli import project_run  # type: ignore[attr-defined]
from wasabi import msg

from ..errors import CorpusError, Errors
from ..storage import hold

# Held by whoever changes a project.
LOCK_FILE = ".steps.lock"


def main(project: Path) -> None:
    # An interrupt is for the step alone: spaCy would kill it a quarter of a second
    # later, and a checkpoint takes longer.
    signal.signal(signal.SIGINT, lambda *_: None)
    busy = CorpusError(Errors.E114.format(path=project))
    try:
        with hold(project / LOCK_FILE, busy):
            remove_damaged(project / "project.lock")
            project_run(project, "all")
    except (CorpusError, OSError) as e:
        msg.fail(str(e), exits=1)


def remove_damaged(lock: Path) -> None:
    """Remove spaCy's list of the steps that are done, if a power cut left a part of
    it: then all run again, and pretraining resumes.
    """
    if not lock.exists():
        return
    try:
        steps = srsly.read_yaml(lock)
        is_whole = all(isinstance(step, dict) for step in steps.values())
    except (ValueError, AttributeError):
        is_whole = False
    if not is_whole:
        lock.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
