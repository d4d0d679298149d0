"""Bundle a pretrained model: float16 weights with their softmax, vocabulary, metadata
and a model card.

    python scripts/bundle.py model my_bilm en_elmo_sm heldout.txt --version 0.2.1 \
        --earlier FIRST_RUN --mean-with FIRST_RUN
    python scripts/bundle.py card en_elmo_sm --scores benchmarks/accuracy.json

Give --earlier once for each run that the model started from, in order, or for the
model of such a run that this script has bundled. --mean-with bundles the mean of the
weights of two runs with the same vocabulary, for instance of where the last run began
and where it ended. The card is made of card_NAME.md beside this script, by the output's
name, or of --template. The second command writes it again, with the scores of tasks.
"""

import shutil
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Dict, List, Optional, Tuple

import srsly
import typer
from thinc.api import Config
from torch import nn

from spacy_elmo.about import __version__
from spacy_elmo.bilm import BiLM
from spacy_elmo.cli.evaluate import evaluate_cli
from spacy_elmo.cli.inputs import write_tokenizer
from spacy_elmo.pretraining.language_model import read_softmax, write_model
from spacy_elmo.pretraining.softmax import Softmax
from spacy_elmo.pretraining.vocabulary import VOCABULARY

TASKS = {
    "tagger": "EWT, tag accuracy", "ner": "UNER-EWT, NER F1",
    "ner_wnut": "WNUT-17, NER F1",
}  # fmt: skip
ARMS = ("spacy_default", "no_listener", "elmo")
TOTALS = ("tokens", "steps", "epochs", "hours")
CURVE_TOKENS = 8_000_000  # between two points in meta.json
CARD_TOKENS = 25_000_000  # and on the card
HERE = Path(__file__).parent

app = typer.Typer()
Curve = List[Tuple[int, float]]  # tokens read, held-out perplexity


@app.command()
def model(
    trained: Path,
    output: Path,
    heldout: List[Path],
    earlier: Annotated[List[Path], typer.Option(default_factory=list)],
    version: str = __version__,
    mean_with: Optional[Path] = None,
    template: Optional[Path] = None,
) -> None:
    """Write the model, what is known of it (meta.json), and its card."""
    bilm, softmax = read(trained)
    if mean_with is not None:
        if (trained / VOCABULARY).read_bytes() != (mean_with / VOCABULARY).read_bytes():
            raise SystemExit(f"{trained} and {mean_with} differ in {VOCABULARY}")
        ours, theirs = (nn.ModuleList(read(run)) for run in (trained, mean_with))
        for mine, other in zip(ours.parameters(), theirs.parameters()):
            mine.lerp_(other, 0.5)
        bilm, softmax = ours
    write_model(bilm, softmax, output, dtype="float16")
    shutil.copy(trained / VOCABULARY, output)
    write_tokenizer(trained, output)
    config = Config().from_disk(trained / "config.cfg")
    del config["paths"]  # they mean nothing elsewhere
    held_out = {
        path.stem: evaluate_cli(str(output), str(path), None, "zero", None, None, None)
        for path in heldout
    }
    parts = [history(run) for run in [*earlier, trained]]
    meta = {
        "name": output.name,
        "lang": config.get("nlp", {"lang": "en"})["lang"],
        "version": version,
        "license": "MIT",
        "parameters": bilm.n_parameters,
        "vocab_size": softmax.vocab_size,
        "perplexity": {name: p.to_dict() for name, p in held_out.items()},
        "training": {key: sum(part[key] for part, _ in parts) for key in TOTALS},
        "curve": join_curves(parts), "config": config,
    }  # fmt: skip
    srsly.write_json(output / "meta.json", meta)
    card(output, template=template)


def read(run: Path) -> Tuple[BiLM, Softmax]:
    bilm = BiLM.from_path(run)
    return bilm, read_softmax(run, bilm.options.lstm.projection_dim)


@app.command()
def card(
    output: Path,
    scores: Optional[Path] = None,
    template: Optional[Path] = None,
) -> None:
    """Write the card (README.md) from meta.json, by the template of its name."""
    meta: Any = srsly.read_json(output / "meta.json")
    if scores is not None:
        runs: Any = srsly.read_json(scores)
        meta["scores"] = {key: run["score"] for key, run in runs["runs"].items()}
        srsly.write_json(output / "meta.json", meta)
    config = meta["config"]
    size = sum(f.stat().st_size for f in output.iterdir() if f.suffix != ".md")
    perplexity = [
        f"| {name} | {p['n_tokens']:,} | {p['n_unknown']:,} | {p['forward']:.1f} "
        f"| {p['backward']:.1f} | **{p['average']:.1f}** "
        f"| {p['bits_per_character']:.3f} |"
        for name, p in meta["perplexity"].items()
    ]
    curve: Curve = []
    for n, p in meta["curve"]:
        if not curve or n - curve[-1][0] >= CARD_TOKENS:
            curve.append((n, p))
    template = template or HERE / f"card_{output.name}.md"
    text = template.read_text(encoding="utf8").format(
        **config["model"], **config["training"], **meta["training"],
        meta=meta, megabytes=size / 1e6, perplexity="\n".join(perplexity),
        n_filters=sum(n for _, n in config["model"]["char_cnn"]["filters"]),
        width=2 * config["model"]["lstm"]["projection_dim"],
        curve="\n".join(f"| {n / 1e6:.0f} | {p:.1f} |" for n, p in curve),
        scores="\n".join(score_rows(meta.get("scores", {}))),
    )  # fmt: skip
    (output / "README.md").write_text(text, encoding="utf8")


def score_rows(scores: Dict[str, float]) -> List[str]:
    """The scores of each task whose arms have all been run, means over their seeds,
    and the errors removed.
    """
    found: Dict[Tuple[str, str], Dict[str, List[float]]] = {}
    for key, score in scores.items():
        task, arm, budget, _ = key.split("/")
        found.setdefault((task, budget), {}).setdefault(arm, []).append(score)
    rows = []
    for (task, _), arms in found.items():
        if set(ARMS) <= set(arms):
            default, without, elmo = (mean(arms[arm]) for arm in ARMS)
            removed = (elmo - default) / (1 - default)
            rows.append(
                f"| {TASKS[task]} | {default:.4f} | {without:.4f} | {elmo:.4f} "
                f"| {removed:.0%} |"
            )
    return rows


def history(run: Path) -> Tuple[Dict[str, float], Curve]:
    """What a run, or all runs of a bundled model, have read in all; and held-out
    perplexity by tokens read, every few million tokens.
    """
    if (run / "meta.json").is_file():
        meta: Any = srsly.read_json(run / "meta.json")
        return meta["training"], meta["curve"]
    log: Any = list(srsly.read_jsonl(run / "log.jsonl"))
    end = [record for record in log if "loss" in record][-1]
    totals = end["tokens"], end["step"], end["epoch"], end["seconds"] / 3600
    points: Curve = []
    for record in log:
        due = not points or record["tokens"] - points[-1][0] >= CURVE_TOKENS
        if "average" in record and (due or "final" in record):
            points.append((record["tokens"], round(record["average"], 2)))
    return dict(zip(TOTALS, totals)), points


def join_curves(parts: List[Tuple[Dict[str, float], Curve]]) -> Curve:
    """One curve over all that was read."""
    points: Curve = []
    before = 0
    for totals, curve in parts:
        points += [(before + n, perplexity) for n, perplexity in curve]
        before += int(totals["tokens"])
    return points


if __name__ == "__main__":
    app()
