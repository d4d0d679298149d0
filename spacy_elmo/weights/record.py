"""What a download brought: the digests of its files, kept with them. Nobody publishes
them, so they cannot tell whether the right files came; but whether they have changed
since.
"""

from pathlib import Path
from typing import Dict, Optional

import srsly

from ..errors import Errors, WeightsError
from ..storage import replacing, sha256

RECORD = "download.json"


def write_record(model: Path, digests: Dict[str, str]) -> None:
    """Keep the digests of a model.

    model (Path): The folder or the archive.
    digests (Dict[str, str]): SHA-256 by the names of the files.
    """
    with replacing(_record_of(model)) as temporary:
        srsly.write_json(temporary, {"sha256": digests})


def read_record(model: Path) -> Dict[str, str]:
    """The digests that a model came with.

    model (Path): A folder, an archive or a file in a folder.
    RETURNS (Dict[str, str]): SHA-256 by the names of the files; empty for a model that
        was not downloaded.
    RAISES (WeightsError): If the record cannot be read.
    """
    path = _record_of(model)
    if not path.is_file() and model.suffix == ".hdf5":
        path = model.with_name(RECORD)
    if not path.is_file():
        return {}
    try:
        return dict(srsly.read_json(path)["sha256"])
    except (ValueError, TypeError, KeyError) as e:
        raise WeightsError(Errors.E006.format(path=path, reason=e)) from None


def find_change(model: Path) -> Optional[str]:
    """Compare the files of a model with what came.

    RETURNS (Optional[str]): What is different, or None.
    """
    try:
        wanted = read_record(model)
    except WeightsError as e:
        return str(e)
    for name, digest in wanted.items():
        file = model / name if model.is_dir() else model
        if not file.is_file():
            return f"{name} is missing"
        found = sha256(file)
        if found != digest:
            return f"the SHA-256 of {name} is {found}, not {digest}"
    return None


def _record_of(model: Path) -> Path:
    if model.is_dir():
        return model / RECORD
    return model.with_name(f"{model.name}.{RECORD}")
