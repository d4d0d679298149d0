from pathlib import Path
from typing import Any, Dict, List, Union

import srsly
from spacy.cli._util import Arg
from wasabi import msg

from ..errors import Errors, MissingWeights, WeightsError
from ._app import app
from .inputs import JSON, read_meta


@app.command("info")
def info_cli(
    weights: str = Arg(..., help="Name or path of a biLM, or of a pipeline with one"),
    as_json: bool = JSON,
) -> None:
    """
    Print what a biLM is: its geometry, its parameters, its digests and its license.
    That of the parameters stays the same when a pipeline is saved with them.
    """
    found = read_info(weights)
    if as_json:
        print(srsly.json_dumps(found, indent=2))
        return
    rows = {"Path": found["path"], **geometry(found)}
    rows["Digest of parameters"] = found["digest"]
    rows["SHA-256 of file"] = found["sha256"]
    rows["Version"] = found["version"] or "not given"
    rows["License"] = found["license"] or "not given"
    msg.table({**rows, 'Precision "auto"': f"{found['auto']} on this machine"})


def read_info(weights: Union[str, Path]) -> Dict[str, Any]:
    """Read a biLM, which a saved pipeline may hold, and describe it.

    RETURNS (Dict[str, Any]): "path", "options" (as in options.json), "layers"
        (L + 1), "width" of a layer, "parameters", "digest" of their values and of the
        geometry, "sha256" of the .hdf5 file, "version" and "license" of the meta.json
        beside it, or None, and "auto", the precision of that name on this machine.
    RAISES (WeightsError): If the model cannot be read, or if a pipeline has several.
    """
    from ..bilm import BiLM
    from ..bilm.files import find_files
    from ..layers.caches import digest
    from ..storage import sha256

    path = _find(weights)
    bilm = BiLM.from_path(path)
    meta = read_meta((path if path.is_dir() else path.parent) / "meta.json")
    return {
        "path": str(path),
        "options": bilm.options.to_dict(),
        "layers": bilm.options.n_layers,
        "width": bilm.options.width,
        "parameters": bilm.n_parameters,
        "digest": digest(bilm),
        "sha256": sha256(find_files(path).weights),
        "version": meta.get("version"),
        "license": meta.get("license"),
        "auto": bilm.use_precision("auto").precision,
    }


def geometry(info: Dict[str, Any]) -> Dict[str, str]:
    """Rows of a table, of what `read_info` gives."""
    lstm, char_cnn = info["options"]["lstm"], info["options"]["char_cnn"]
    filters = ", ".join(f"{n} of {w}" for w, n in char_cnn["filters"])
    layers = f"{info['layers']} of width {info['width']}"
    return {
        "Layers": f"{layers}, the token layer included",
        "LSTM": f"{lstm['n_layers']} x {lstm['dim']}/{lstm['projection_dim']}",
        "Character CNN": f"{filters} ({char_cnn['activation']})",
        "Longest word": f"{char_cnn['max_characters_per_token'] - 2} bytes of UTF-8",
        "Highway layers": f"{char_cnn['n_highway']}",
        "Parameters": f"{info['parameters']:,}",
    }


def _find(weights: Union[str, Path]) -> Path:
    """Where a biLM is, by its own name or path or by that of a pipeline."""
    from spacy.util import get_package_path, is_package

    from ..weights import resolve

    try:
        return _in_pipeline(resolve(weights))
    except MissingWeights:
        name = str(weights)
        package = get_package_path(name) if is_package(name) else Path(name)
        for config in package.glob("*/config.cfg"):
            return _in_pipeline(config.parent)
        raise


def _in_pipeline(path: Path) -> Path:
    """Of a saved pipeline the folder of its biLM; any other path as it is."""
    found: List[Path] = []
    if (path / "config.cfg").is_file() and not any(path.glob("*.hdf5")):
        found = [p.parent for p in path.glob("*/options.json")]
    if len(found) > 1:
        paths = ", ".join(map(str, sorted(found)))
        raise WeightsError(Errors.E127.format(path=path, n=len(found), paths=paths))
    return found[0] if found else path
