from pathlib import Path
from typing import Any, Dict, List

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors, unusable
from ._app import app

PERPLEXITIES = ("forward", "backward", "average")


@app.command("plot")
def plot_cli(
    logs: List[Path] = Arg(..., help="Logs of runs (log.jsonl), or their folders"),
    output_path: Path = Opt(Path("log.png"), "--output", "-o", help="Image file"),
) -> None:
    """
    Plot loss and held-out perplexity of pretraining runs. The x axis is the tokens
    read.
    """
    from ..pretraining.loggers import read_log

    runs = {str(path): read_log(path) for path in logs}
    try:
        # Not pyplot, which has windows and global state.
        from matplotlib.figure import Figure
    except ImportError as e:
        raise CorpusError(Errors.E061.format(reason=e)) from None
    figure = Figure(figsize=(7, 5.2), layout="constrained")
    losses, perplexities = figure.subplots(2, 1, sharex=True)
    losses.set_ylabel("loss in training (nats)")
    perplexities.set_ylabel("held-out perplexity")
    perplexities.set_yscale("log")
    perplexities.set_xlabel("million tokens")
    for i, (name, records) in enumerate(runs.items()):
        _draw(losses, records, "loss", name, color=f"C{i}")
        for key, style in zip(PERPLEXITIES, (":", "--", "-")):
            label = f"{name}, {key}" if len(runs) > 1 else key
            _draw(perplexities, records, key, label, color=f"C{i}", linestyle=style)
        for file in {name: None for r in records for name in r.get("files", {})}:
            its = [r for r in records if file in r.get("files", {})]
            of_file = [{**r["files"][file], "tokens": r["tokens"]} for r in its]
            look = {"linewidth": 0.8, "linestyle": "-."}
            _draw(perplexities, of_file, "average", file, **look)
    for panel in (losses, perplexities):
        panel.grid(alpha=0.3)
        if panel.lines:
            panel.legend(fontsize="small")
    if output_path.is_dir():
        output_path /= "log.png"
    if not output_path.suffix:
        output_path = output_path.with_suffix(".png")  # as matplotlib would
    output_path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(output_path, dpi=150)
    except ValueError as e:  # matplotlib's for a format that it does not know
        raise unusable(output_path, str(e)) from None
    msg.good(f"Saved the plot to {output_path}")


def _draw(
    panel: Any, records: List[Dict[str, Any]], key: str, label: str, **style: Any
) -> None:
    points = [(r["tokens"] / 1e6, r[key]) for r in records if key in r]
    if points:
        # Markers show a single point too, of a run that has just begun.
        panel.plot(*zip(*points), label=label, marker=".", **style)
