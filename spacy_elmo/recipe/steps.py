"""python -m spacy_elmo.recipe.steps PROJECT: run the steps that are not done yet."""

import signal
import sys
from pathlib import Path

from spacy.cli import project_run  # type: ignore[attr-defined]
from wasabi import msg

from ..errors import CorpusError, Errors
from ..storage import hold


def main(project: Path) -> None:
    # An interrupt is for the step alone: spaCy would kill it a quarter of a second
    # later, and a checkpoint takes longer.
    signal.signal(signal.SIGINT, lambda *_: None)
    busy = CorpusError(Errors.E114.format(path=project))
    try:
        with hold(project / ".steps.lock", busy):
            project_run(project, "all")
    except CorpusError as e:
        msg.fail(str(e), exits=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
