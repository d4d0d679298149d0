from pathlib import Path
from typing import Optional

import srsly
from spacy.cli._util import Arg
from wasabi import msg

from ..errors import CorpusError, Errors
from ._app import app
from .inputs import CODE, JSON, load_pipeline


@app.command("mix")
def mix_cli(
    pipeline: str = Arg(..., help="Trained pipeline: name or path"),
    as_json: bool = JSON,
    code_path: Optional[Path] = CODE,
) -> None:
    """
    Print how each component of a pipeline mixes the layers. These are the weights s_0
    (token layer) to s_L, which sum to 1, and the scale gamma.
    """
    from ..pipeline.learned_weights import get_mixes

    mixes = get_mixes(load_pipeline(pipeline))
    if not mixes:
        raise CorpusError(Errors.E080.format(pipeline=pipeline))
    if as_json:
        print(srsly.json_dumps(mixes, indent=2))
        return
    rows = []
    for mix in mixes:
        upstream = mix["upstream"] or "(its own biLM)"
        s = "  ".join(f"{s_j:.3f}" for s_j in mix["s"])
        rows.append([mix["component"], upstream, s, f"{mix['gamma']:.3f}"])
    header = ["Component", "Listens to", "s_0 ... s_L", "gamma"]
    msg.table(rows, header=header, divider=True)
