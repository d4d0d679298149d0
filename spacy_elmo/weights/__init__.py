import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Union

from .. import registry
from ..errors import Errors, MissingWeights, did_you_mean, looked_for
from .published import MODELS, cached_path, find_published


def en_elmo_sm() -> Path:
    """The English biLM of the package. Its model card is README.md beside it."""
    return Path(__file__).parent / "en_elmo_sm"


def en_elmo_md() -> Path:
    """A larger English biLM: better for names, and slower. Its card is beside it."""
    return Path(__file__).parent / "en_elmo_md"


def resolve(name_or_path: Union[str, Path]) -> Path:
    """Where a model is, given its name or a path. Nothing is opened, and nothing is
    downloaded.

    name_or_path (str or Path): A name in `spacy_elmo.registry.weights`, a path, or
        the name of a published model that has been downloaded (see `published`).
    RETURNS (Path): A directory, .zip or .hdf5 file.
    RAISES (MissingWeights): If there is none.
    """
    if isinstance(name_or_path, str) and name_or_path in registry.weights:
        return Path(registry.weights.get(name_or_path)())
    name = str(name_or_path)
    path = os.path.expanduser(name)  # no shell has read a config
    if name and os.path.exists(path):  # Path has errors for impossible names
        return Path(path)
    if "://" in name:
        raise MissingWeights(Errors.E013.format(url=name))
    model = find_published(name)
    if model is None:
        # Without importing the packages that publish them.
        names = sorted(entry_points(group="spacy_elmo_weights").names)
        hint = did_you_mean(name, [*names, *MODELS])
        known = {"names": ", ".join(names), "published": ", ".join(MODELS)}
        error = Errors.E001.format(path=looked_for(name or "''"), hint=hint, **known)
        raise MissingWeights(error)
    cached = cached_path(name, model)
    if not cached.exists():
        raise MissingWeights(Errors.E103.format(name=name, path=cached))
    return cached
