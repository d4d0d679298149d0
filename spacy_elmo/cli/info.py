from pathlib import Path
from typing import Any, Dict

import srsly
from spacy.cli._util import Arg
from spacy.util import get_package_path, is_package
from wasabi import msg

from ..errors import Errors, MissingWeights, WeightsError
from ..storage import beside, sha256
from ._app import app
from .inputs import JSON, read_meta
from .outputs import describe


@app.command("info")
def info_cli(
    weights: str = Arg(..., help="Name or path of a biLM, or of a pipeline with one"),
    as_json: bool = JSON,
) -> None:
    """
    Print a biLM's geometry, parameters, digests and license. The digest of the
    parameters stays the same when a pipeline is saved with them.
    """
    from ..bilm import BiLM
    from ..bilm.paths import find_files

    path = find_bilm(weights)
    bilm = BiLM.from_path(path)
    meta = read_meta(beside(path, "meta.json"))
    found: Dict[str, Any] = {
        "path": str(path),
        "options": bilm.options.to_dict(),
        "layers": bilm.options.n_layers,
        "width": bilm.options.width,
        "parameters": bilm.n_parameters,
        "digest": bilm.digest(),
        "sha256": sha256(find_files(path).weights),
        "version": meta.get("version"),
        "license": meta.get("license"),
        "auto": bilm.use_precision("auto").precision,
    }
    if as_json:
        print(srsly.json_dumps(found, indent=2))
        return
    rows = {"Path": str(path), **describe(bilm, meta)}
    rows["Digest of parameters"] = found["digest"]
    rows["SHA-256 of file"] = found["sha256"]
    msg.table({**rows, 'Precision "auto"': f"{found['auto']} on this machine"})


def find_bilm(weights: str) -> Path:
    """Where a biLM is, given its name or path, or the name or path of a pipeline.

    RAISES (WeightsError): If there is none, or if a pipeline has several.
    """
    from ..weights import resolve

    try:
        path = resolve(weights)
    except MissingWeights:
        # An installed pipeline
        is_named = weights and is_package(weights)  # Python 3.10 has a package ""
        folders = [get_package_path(weights.replace("-", "_"))] if is_named else []
        configs = [path for folder in folders for path in folder.glob("*/config.cfg")]
        if not configs:
            raise
        path = configs[0].parent
    if not (path / "config.cfg").is_file() or any(path.glob("[!.]*.hdf5")):
        return path
    found = sorted(options.parent for options in path.glob("*/options.json"))
    if len(found) > 1:
        paths = ", ".join(map(str, found))
        raise WeightsError(Errors.E127.format(path=path, n=len(found), paths=paths))
    return found[0] if found else path
