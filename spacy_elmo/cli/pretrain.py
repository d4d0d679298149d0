import os
from pathlib import Path
from typing import Any, Dict, Optional

import typer
from spacy.cli._util import Arg, Opt, import_code, parse_config_overrides
from wasabi import msg

from ._app import app, plain_errors


@app.command(
    "pretrain",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def pretrain_cli(
    ctx: typer.Context,  # only for the additional arguments
    config_path: Path = Arg(
        ..., help="Path to config file", exists=True, dir_okay=False
    ),
    output_path: Path = Arg(
        ...,
        help="Directory for the model, its log and its checkpoints",
        file_okay=False,
    ),
    init_from: Optional[str] = Opt(
        None,
        "--init-from",
        "-i",
        help="Trained model to start from, by name or path: adaptation to the text of "
        "a domain",
    ),
    code_path: Optional[Path] = Opt(
        None,
        "--code",
        "-c",
        help="Path to Python file with additional code (registered functions) to be "
        "imported",
    ),
) -> None:
    """
    Pretrain the bidirectional language model of ELMo on raw text. To override
    settings in the config, for instance paths, give them as command line options:
    --paths.train corpus.txt. The same command goes on where an earlier one in the
    same directory was stopped.
    """
    overrides = parse_config_overrides(ctx.args)
    if init_from is not None:
        overrides["paths.init_from"] = init_from
    import_code(code_path)
    with plain_errors():
        pretrain(config_path, output_path, overrides=overrides, code_path=code_path)
        from ..pretraining.distributed import leave_joined_processes

        leave_joined_processes()


def pretrain(
    config_path: Path,
    output_path: Path,
    *,
    overrides: Optional[Dict[str, Any]] = None,
    code_path: Optional[Path] = None,
) -> None:
    """Pretrain a biLM and print its held-out perplexity. See `pretrain_cli`."""
    from ..pretraining.config import read_settings
    from ..pretraining.training import pretrain as train_bilm

    settings = read_settings(config_path, overrides, code=code_path)
    found = train_bilm(settings, output_path)
    if int(os.environ.get("RANK", 0)) > 0:
        return
    msg.good(f"Saved the biLM to {output_path}")
    if found is None:
        return
    msg.table(
        [
            (
                name,
                f"{p.forward:.2f}",
                f"{p.backward:.2f}",
                f"{p.average:.2f}",
                f"{p.bits_per_character:.4f}",
                f"{p.n_unknown / p.n_tokens:.1%}",
            )
            for name, p in {**found.files, "held-out text": found}.items()
        ],
        header=("perplexity", "forward", "backward", "average", "bits/char", "unknown"),
        aligns=("l", "r", "r", "r", "r", "r"),
    )
