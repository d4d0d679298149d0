from pathlib import Path
from typing import Any, Dict, List

import srsly
from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors, unusable
from ._app import app

LOG = "log.jsonl"
PERPLEXITIES = ("forward", "backward", "average")
Records = List[Dict[str, Any]]


@app.command("plot")
def plot_cli(
    logs: List[Path] = Arg(
        ..., help="Logs of pretraining (log.jsonl), or their folders"
    ),
    output_path: Path = Opt(Path("log.png"), "--output", "-o", help="Image file"),
) -> None:
    """
    Plot the curves of one or more pretraining runs: loss and held-out perplexity over
    tokens.
    """
    runs = {str(path): read_log(path) for path in logs}
    figure = new_figure(7, 5.2, layout="constrained")
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
            _draw(perplexities, records, file, file, linewidth=0.8, linestyle="-.")
    for panel in (losses, perplexities):
        panel.grid(alpha=0.3)
        if panel.lines:
            panel.legend(fontsize="small")
    save_figure(figure, output_path)
    msg.good(f"Saved the plot to {output_path}")


def read_log(path: Path) -> Records:
    """Read a log.jsonl, or the one in a folder. Incomplete lines, of runs that were
    killed, are skipped.

    RAISES (CorpusError): If it is no such log, or has nothing to plot yet.
    """
    file = path / LOG if path.is_dir() else path
    if not file.is_file():
        raise unusable(file, "there is no such file")
    records: Records = []
    for record in srsly.read_jsonl(file, skip=True):
        if isinstance(record, dict) and "tokens" in record:
            # Held-out files have curves of their own.
            files = record.get("files", {}).items()
            records.append({**record, **{name: f["average"] for name, f in files}})
    if not any("loss" in r or "average" in r for r in records):
        raise unusable(file, "has no losses and no perplexities of a pretraining run")
    return records


def _draw(panel: Any, records: Records, key: str, label: str, **style: Any) -> None:
    points = [(r["tokens"] / 1e6, r[key]) for r in records if key in r]
    if points:
        # Markers show a single point too, of a run that has just begun.
        panel.plot(*zip(*points), label=label, marker=".", **style)


def new_figure(width: float, height: float, **options: Any) -> Any:
    """RAISES (CorpusError): Without matplotlib."""
    try:
        # Not pyplot, which has windows and global state.
        from matplotlib.figure import Figure
    except ImportError as e:
        raise CorpusError(Errors.E061.format(reason=e)) from None
    return Figure(figsize=(width, height), **options)


def save_figure(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, bbox_inches="tight", dpi=150)
    except ValueError as e:  # matplotlib's for a format that it does not know
        raise unusable(path, str(e)) from None
