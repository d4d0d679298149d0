from itertools import zip_longest
from pathlib import Path
from typing import Any, Dict, List, Optional

import srsly
from spacy.cli._util import Arg, Opt
from spacy.language import Language
from wasabi import msg

from ..errors import CorpusError, Errors
from ._app import app
from .inputs import JSON, find_mixes, load_pipeline
from .outputs import new_figure, save_figure


@app.command("mix")
def mix_cli(
    pipeline: str = Arg(..., help="Trained pipeline: name or path"),
    as_json: bool = JSON,
    plot_path: Optional[Path] = Opt(
        None, "--plot", "-p", help="Draw a heat map to this file (.png, .svg, .pdf)"
    ),
) -> None:
    """
    Print how each component of a pipeline mixes the layers. These are the weights s_0
    (token layer) to s_L, which sum to 1, and the scale gamma.
    """
    mixes = get_mixes(load_pipeline(pipeline))
    if not mixes:
        raise CorpusError(Errors.E080.format(pipeline=pipeline))
    if plot_path is not None:
        plot_mixes(mixes, plot_path)
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


def get_mixes(nlp: Language) -> List[Dict[str, Any]]:
    """What the components of a pipeline have learned about the layers of their biLM
    (Peters et al. 2018, equation 1).

    RETURNS (List[Dict[str, Any]]): For each mix "component", "upstream" (None if the
        component has a biLM of its own), "s", a list of L + 1 floats, and "gamma".
    """
    from ..layers.mix import get_mix

    found = []
    for name, encoder, mix in find_mixes(nlp):
        s, gamma = get_mix(mix)
        listener = {"component": name, "upstream": encoder.attrs.get("upstream")}
        found.append({**listener, "s": s.tolist(), "gamma": gamma})
    return found


def plot_mixes(mixes: List[Dict[str, Any]], path: Path) -> None:
    """Draw a heat map of s, layers by components, as figure 2 of the paper.

    RAISES (CorpusError): Without matplotlib, or for an unknown format.
    """
    # Layer 0 is at the bottom; layers that a smaller model lacks stay blank.
    grid = list(zip_longest(*(mix["s"] for mix in mixes), fillvalue=float("nan")))
    figure = new_figure(1.5 + 1.2 * len(mixes), 1.2 + 0.7 * len(grid))
    axes = figure.add_subplot()
    image = axes.imshow(grid, vmin=0, vmax=1, cmap="Blues", origin="lower")
    labels = [f"{m['component']}\n$\\gamma$ = {m['gamma']:.2f}" for m in mixes]
    axes.set_xticks(range(len(mixes)), labels)
    axes.set_yticks(range(len(grid)), [f"$s_{j}$" for j in range(len(grid))])
    for i, mix in enumerate(mixes):
        for j, s_j in enumerate(mix["s"]):
            color = "white" if s_j > 0.6 else "black"
            axes.text(i, j, f"{s_j:.2f}", ha="center", va="center", color=color)
    figure.colorbar(image)
    save_figure(figure, path)
