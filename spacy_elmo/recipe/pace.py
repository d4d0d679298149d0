"""How fast this machine trains, by some real steps."""

import shutil
from pathlib import Path
from typing import Any

import srsly
from thinc.api import Config

from ..pretraining.config import read_settings
from ..pretraining.training import pretrain
from .raw_text import TEXT

N_STEPS = 12
# The first steps wait for what is made once.
WARM_UP = 4
SAMPLE_CHARACTERS = 1_000_000


def measure_pace(config: Config, corpus: Path, folder: Path) -> float:
    """Train for some steps on the beginning of a text, in a folder that is removed
    again. RETURNS (float): Tokens per second.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (corpus / TEXT).open(encoding="utf8") as file:
        # Enough pieces for the rows; the last may be cut.
        (folder / TEXT).write_text(file.read(SAMPLE_CHARACTERS), encoding="utf8")
    training = config["training"]
    overrides: Any = {
        "paths.train": str(folder / TEXT),
        "paths.dev": None,
        "training.keep_best": False,
        "training.max_tokens": N_STEPS * training["rows"] * training["unroll_steps"],
        "training.max_epochs": 1000.0,
        "training.log_steps": 1,
    }
    config.to_disk(folder / "config.cfg")
    pretrain(read_settings(folder / "config.cfg", overrides), folder, silent=True)
    first, *_, last = list(srsly.read_jsonl(folder / "log.jsonl"))[WARM_UP:]
    shutil.rmtree(folder)
    seconds = last["seconds"] - first["seconds"]
    return float((last["tokens"] - first["tokens"]) / max(0.1, seconds))
