import warnings
from contextlib import contextmanager
from typing import Any, Iterator

import typer
from spacy.cli._util import app as spacy_app
from wasabi import msg

from ..errors import CorpusError, DownloadError, TrainingError, WeightsError

HELP = "ELMo: pretrain bidirectional language models, and look into them."

app = typer.Typer(name="elmo", help=HELP, no_args_is_help=True)
spacy_app.add_typer(app)


@contextmanager
def plain_errors() -> Iterator[None]:
    """End the command with the message alone where input is bad, and show our
    warnings as messages too.
    """
    others = warnings.showwarning

    def show(message: Any, *args: Any, **kwargs: Any) -> None:
        if str(message).startswith("[ELMO"):
            msg.warn(str(message))
        else:
            others(message, *args, **kwargs)

    expected = (WeightsError, CorpusError, DownloadError, TrainingError, OSError)
    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            yield
        except BrokenPipeError:
            raise  # click ends quietly where the reader of a pipe has left
        except expected as e:
            msg.fail(str(e), exits=1)
