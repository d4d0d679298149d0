import hashlib
import io
from pathlib import Path
from typing import Any, Dict, Union

import srsly
from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import Errors, WeightsError
from ._app import app, plain_errors

CHUNK_BYTES = 1 << 20


@app.command("info")
def info_cli(
    weights: str = Arg(..., help="Registered name or path of a biLM"),
    as_json: bool = Opt(False, "--json", "-j", help="Print JSON"),
) -> None:
    """
    Print what a biLM is: its geometry, its parameters, its fingerprint and its
    licence.
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
            "SHA-256": found["sha256"],
            "Licence": found["license"] or "not given",
        }
    )


def info(weights: Union[str, Path]) -> Dict[str, Any]:
    """Read a biLM and describe it.

    weights (str or Path): Registered name or path.
    RETURNS (Dict[str, Any]): "path", "options" (as in options.json), "layers"
        (L + 1), "width" of a layer, "parameters", "sha256" of the .hdf5 file and
        "license" of the meta.json beside it, or None.
    RAISES (WeightsError): If the model cannot be read.
    """
    from ..bilm import BiLM
    from ..bilm.files import find_files
    from ..weights import resolve

    path = resolve(weights)
    bilm = BiLM.from_path(path)
    return {
        "path": str(path),
        "options": bilm.options.to_dict(),
        "layers": bilm.options.n_layers,
        "width": bilm.options.width,
        "parameters": sum(p.numel() for p in bilm.parameters()),
        "sha256": _sha256(find_files(path).weights),
        "license": _license(path),
    }


def _sha256(file: Union[Path, Any]) -> str:
    digest = hashlib.sha256()
    opened = file.open("rb") if isinstance(file, Path) else io.BytesIO(file.read())
    with opened:
        while block := opened.read(CHUNK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _license(path: Path) -> Any:
    meta = (path if path.is_dir() else path.parent) / "meta.json"
    if not meta.is_file():
        return None
    try:
        return dict(srsly.read_json(meta)).get("license")
    except (ValueError, TypeError) as e:
        raise WeightsError(Errors.E006.format(path=meta, reason=e)) from None
