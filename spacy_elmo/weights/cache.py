"""Where downloaded models are kept."""

import os
from pathlib import Path

from .addresses import Published

VARIABLE = "SPACY_ELMO_CACHE"


def cache_folder() -> Path:
    """$SPACY_ELMO_CACHE, or `spacy_elmo` in the user's folder for caches."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spacy_elmo"


def cached_path(name: str, model: Published) -> Path:
    """Where a model is once it has been downloaded: a folder, or an archive."""
    path = cache_folder() / name
    archive = len(model.files) == 1 and model.files[0].path.endswith(".zip")
    return path.with_name(path.name + ".zip") if archive else path
