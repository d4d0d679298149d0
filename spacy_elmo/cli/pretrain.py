import os
from pathlib import Path
from typing import Optional

import typer
from spacy.cli._util import Arg, Opt, import_code, parse_config_overrides
from wasabi import msg

from ._app import app
from .inputs import FILE
from .outputs import print_perplexities


@app.command(
    "pretrain",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def pretrain_cli(
    ctx: typer.Context,  # only for the additional arguments
    config_path: Path = Arg(..., help="Config file", exists=True, dir_okay=False),
    output_path: Path = Arg(
        ..., help="Directory for the model, its log and checkpoints", file_okay=False
    ),
    init_from: Optional[str] = Opt(
        None, "--init-from", "-i", help="Model to adapt to the text, by name or path"
    ),
    code_path: Optional[Path] = Opt(
        None,
        "--code",
        "-c",
        help="Python file with registered functions, to import",
        **FILE,
    ),  # fmt: skip
) -> None:
    """
    Pretrain the bidirectional language model of ELMo on raw text. To override
    settings in the config, for instance paths, give them as command line options:
    --paths.train corpus.txt. To resume a run that was stopped, give the same command
    again.
    """
    from ..pretraining.config import read_settings
    from ..pretraining.distributed import leave_joined_processes
    from ..pretraining.training import pretrain

    try:
        overrides = parse_config_overrides(ctx.args)
    except Exception as e:  # click's own, which typer does not know
        raise typer.BadParameter(str(e)) from None
    if init_from is not None:
        overrides["paths.init_from"] = init_from
    import_code(code_path)
    settings = read_settings(config_path, overrides, code=code_path)
    found = pretrain(settings, output_path)
    if int(os.environ.get("RANK", 0)) == 0:
        msg.good(f"Saved the biLM to {output_path}")
        if found is not None:
            print_perplexities({**found.files, "held-out text": found})
    leave_joined_processes()
