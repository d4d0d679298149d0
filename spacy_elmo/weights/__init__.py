from pathlib import Path
from typing import List, Union

from .. import registry
from ..errors import Errors, MissingWeights


def resolve(name_or_path: Union[str, Path]) -> Path:
    """Where a model is, given its registered name or a path. Nothing is opened, and
    nothing is downloaded.

    name_or_path (str or Path): A name in `spacy_elmo.registry.weights`, or a path.
    RETURNS (Path): A directory, .zip or .hdf5 file.
    RAISES (MissingWeights): If it is neither.
    """
    if isinstance(name_or_path, str) and name_or_path in registered_names():
        return Path(registry.weights.get(name_or_path)())
    path = Path(name_or_path)
    if not path.exists():
        names = ", ".join(registered_names())
        raise MissingWeights(Errors.E001.format(path=name_or_path, names=names))
    return path


def registered_names() -> List[str]:
    return sorted(registry.weights.get_all())
