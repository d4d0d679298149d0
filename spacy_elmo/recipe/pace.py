"""How fast this machine trains, by some real steps."""

from pathlib import Path
from tempfile import TemporaryDirectory
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


def measure_pace(config: Config, corpus: Path) -> float:
    """Train for some steps on the beginning of a text.

    corpus (Path): The folder of the text, in which a temporary one is made.
    RETURNS (float): Tokens per second.
    """
    training = config["training"]
    overrides: Any = {
        "paths.dev": None,
        "training.keep_best": False,
        "training.max_tokens": N_STEPS * training["rows"] * training["unroll_steps"],
        "training.max_epochs": 1000.0,
        "training.log_steps": 1,
    }
    with TemporaryDirectory(dir=corpus) as name:
        folder = Path(name)
        sample, path = folder / TEXT, folder / "config.cfg"
        with (corpus / TEXT).open(encoding="utf8") as file:
            # Enough pieces for the rows; the last may be cut.
            sample.write_text(file.read(SAMPLE_CHARACTERS), encoding="utf8")
        config.to_disk(path)
        settings = read_settings(path, {"paths.train": str(sample), **overrides})
        pretrain(settings, folder, silent=True)
        first, *_, last = list(srsly.read_jsonl(folder / "log.jsonl"))[WARM_UP:]
    seconds = last["seconds"] - first["seconds"]
    return float((last["tokens"] - first["tokens"]) / max(0.1, seconds))
