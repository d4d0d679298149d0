from pathlib import Path
from typing import Any, Dict, List, Union

import srsly
from spacy.cli._util import Arg
from wasabi import msg

from ..errors import Errors, MissingWeights, WeightsError
from ._app import app, plain_errors
from ._inputs import JSON


@app.command("info")
def info_cli(
    weights: str = Arg(
        ..., help="Name or path of a biLM, or of a pipeline with an elmo component"
    ),
    as_json: bool = JSON,
) -> None:
    """
    Print what a biLM is: its geometry, its parameters, its digests and its license.
    That of the parameters stays the same when a pipeline is saved with them.
    """
    with plain_errors():
        found = info(weights)
    if as_json:
        print(srsly.json_dumps(found, indent=2))
        return
    lstm, char_cnn = found["options"]["lstm"], found["options"]["char_cnn"]
    filters = ", ".join(f"{n} of {w}" for w, n in char_cnn["filters"])
    layers = f"{found['layers']} of width {found['width']}, the token layer included"
    msg.table(
        {
            "Path": found["path"],
            "Layers": layers,
            "LSTM": f"{lstm['n_layers']} x {lstm['dim']}/{lstm['projection_dim']}",
            "Character CNN": f"{filters} ({char_cnn['activation']})",
            "Highway layers": char_cnn["n_highway"],
            "Parameters": f"{found['parameters']:,}",
            "Digest of parameters": found["digest"],
            "SHA-256 of file": found["sha256"],
            **_downloaded_row(found["downloaded"]),
            "License": found["license"] or "not given",
        }
    )


def info(weights: Union[str, Path]) -> Dict[str, Any]:
    """Read a biLM and describe it.

    weights (str or Path): Name or path, which may be that of a saved pipeline.
    RETURNS (Dict[str, Any]): "path", "options" (as in options.json), "layers"
        (L + 1), "width" of a layer, "parameters", "digest" of their values and of the
        geometry, "sha256" of the .hdf5 file, "downloaded", the SHA-256 of each file
        as it came, or None, and "license" of the meta.json beside it, or None.
    RAISES (WeightsError): If the model cannot be read, or if a pipeline has several.
    """
    from ..bilm import BiLM
    from ..bilm.files import find_files
    from ..layers.sentence_cache import digest
    from ..storage import sha256
    from ..weights.published import read_digests

    path = _find(weights)
    bilm = BiLM.from_path(path)
    return {
        "path": str(path),
        "options": bilm.options.to_dict(),
        "layers": bilm.options.n_layers,
        "width": bilm.options.width,
        "parameters": bilm.n_parameters,
        "digest": digest(bilm),
        "sha256": sha256(find_files(path).weights),
        "downloaded": read_digests(path) or None,
        "license": _license(path),
    }


def _find(weights: Union[str, Path]) -> Path:
    """Where a biLM is, by its own name or path or by that of a pipeline."""
    from spacy.util import get_model_meta, get_package_path, is_package

    from ..weights import resolve

    try:
        return _in_pipeline(resolve(weights))
    except MissingWeights:
        name = str(weights)
        if not is_package(name) or not (get_package_path(name) / "meta.json").is_file():
            raise
    package = get_package_path(name)
    meta = get_model_meta(package)
    folder = f"{meta['lang']}_{meta['name']}-{meta['version']}"
    return _in_pipeline(package / folder)


def _in_pipeline(path: Path) -> Path:
    """Of a saved pipeline the folder of its biLM; any other path as it is."""
    found: List[Path] = []
    if (path / "config.cfg").is_file() and not any(path.glob("*.hdf5")):
        found = [p.parent for p in path.glob("*/options.json")]
    if len(found) > 1:
        paths = ", ".join(map(str, sorted(found)))
        raise WeightsError(Errors.E127.format(path=path, n=len(found), paths=paths))
    return found[0] if found else path


def _downloaded_row(digests: Any) -> Dict[str, str]:
    """Of the weights or of the archive; the other file is a few lines of options."""
    for name, digest in (digests or {}).items():
        if not name.endswith(".json"):
            what = f"{digest} (the archive)" if name.endswith(".zip") else digest
            return {"SHA-256 as downloaded": what}
    return {}


def _license(path: Path) -> Any:
    meta = (path if path.is_dir() else path.parent) / "meta.json"
    if not meta.is_file():
        return None
    try:
        return dict(srsly.read_json(meta)).get("license")
    except (ValueError, TypeError) as e:
        raise WeightsError(Errors.E006.format(path=meta, reason=e)) from None
