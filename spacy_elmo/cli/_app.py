import sys
import warnings
from typing import Any

import typer
from spacy.cli._util import app as spacy_app
from typer.core import TyperGroup
from wasabi import msg
from wasabi.printer import Printer


class Commands(TyperGroup):
    """Prints errors of bad input without a traceback, and our warnings as messages."""

    def invoke(self, ctx: Any) -> Any:
        others = warnings.showwarning

        def show(message: Any, *args: Any, **kwargs: Any) -> None:
            if str(message).startswith("[ELMO"):
                # Not among the results, which may be JSON.
                typer.echo(Printer(no_print=True).warn(str(message)), err=True)
            else:
                others(message, *args, **kwargs)

        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # no error where it is not UTF-8
                stream.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings():
            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise  # click ends quietly if the reader of a pipe has left
            except KeyboardInterrupt:  # of which click says nothing
                msg.fail("Interrupted")
                raise typer.Exit(130) from None
            except (OSError, ValueError, RuntimeError) as e:
                if not (isinstance(e, OSError) or str(e).startswith("[ELMO")):
                    raise
                msg.fail(str(e), exits=1)


app = typer.Typer(
    name="elmo",
    help="ELMo: pretrain bidirectional language models, and look into them.",
    no_args_is_help=True,
    cls=Commands,
)
spacy_app.add_typer(app)
