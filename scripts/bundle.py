"""Make the bundled model out of a pretraining folder: float16 weights, vocabulary,
config, metadata and the model card.

    python scripts/bundle.py my_bilm heldout.txt spacy_elmo/weights/en_elmo_sm [EARLIER]
    python scripts/bundle.py my_bilm heldout.txt spacy_elmo/weights/en_elmo_sm \
        --scores benchmarks/accuracy.json

EARLIER are the folders of the runs that it started from, if any, in their order. The
second command puts the scores of tasks into the card of a model that is bundled.
"""

import os
import platform
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Dict, List, Optional, Tuple

import srsly
import typer

from spacy_elmo.about import __version__
from spacy_elmo.bilm import BiLM
from spacy_elmo.cli.evaluate import evaluate
from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.initialization import initialize
from spacy_elmo.pretraining.language_model import read_softmax, write_model
from spacy_elmo.pretraining.softmax import Softmax
from spacy_elmo.pretraining.vocabulary import read_vocabulary, write_vocabulary

TASKS = {"tagger": "EWT, tag accuracy", "ner": "UNER-EWT, NER F1"}
CURVE_TOKENS = 8_000_000
TEMPLATE = Path(__file__).parent / "card_en_elmo_sm.md"


def main(
    trained: Path,
    heldout: Path,
    output: Path,
    earlier: Annotated[Optional[List[Path]], typer.Argument()] = None,
    scores: Annotated[Optional[Path], typer.Option()] = None,
) -> None:
    """Write the model and its card."""
    if scores is None:
        bundle(trained, heldout, output, earlier or [])
    write_card(output, scores)


def bundle(trained: Path, heldout: Path, output: Path, earlier: List[Path]) -> None:
    settings = read_settings(trained / "config.cfg")
    words = read_vocabulary(trained / "vocab.txt")
    bilm = BiLM.from_path(trained)
    width = settings.options.lstm.projection_dim
    write_model(bilm, read_softmax(trained, width), output, dtype="float16")
    write_vocabulary(output / "vocab.txt", words)
    perplexity = {"trained": evaluate(output, str(heldout))}
    with TemporaryDirectory() as folder:
        fresh = BiLM(settings.options)
        initialize(fresh, settings.training.seed)
        softmax = Softmax(len(words), width)
        softmax.initialize(settings.training.seed + 1)
        write_model(fresh, softmax, Path(folder))
        write_vocabulary(Path(folder) / "vocab.txt", words)
        perplexity["untrained"] = evaluate(folder, str(heldout))
    values = describe(settings, bilm, trained, output, len(words))
    for run in earlier or []:
        before = last_record(run)
        values["tokens"] += before["tokens"]
        values["steps"] += before["step"]
        values["epochs"] += before["epoch"]
        values["hours"] += before["seconds"] / 3600
    found = perplexity["trained"]
    values.update(n_tokens=found["n_tokens"], n_unknown=found["n_unknown"])
    meta = {
        "name": "en_elmo_sm",
        "lang": settings.nlp["lang"],
        "version": __version__,
        "license": "MIT",
        "perplexity": perplexity,
        "training": {k: values[k] for k in ("tokens", "steps", "epochs", "hours")},
        "curve": curve([*earlier, trained]),
        "card": values,
    }
    srsly.write_json(output / "meta.json", meta)


def write_card(output: Path, scores: Optional[Path]) -> None:
    meta: Any = srsly.read_json(output / "meta.json")
    if scores is not None:
        runs: Any = srsly.read_json(scores)
        meta["scores"] = {key: run["score"] for key, run in runs["runs"].items()}
        srsly.write_json(output / "meta.json", meta)
    rows = [f"| {tokens / 1e6:.0f} | {p:.1f} |" for tokens, p in meta["curve"]]
    card = TEMPLATE.read_text(encoding="utf8").format(
        **meta["card"], **meta["perplexity"], curve="\n".join(rows),
        scores="\n".join(score_rows(meta.get("scores", {}))),
    )  # fmt: skip
    (output / "README.md").write_text(card, encoding="utf8")
    print(card)


def score_rows(scores: Dict[str, float]) -> List[str]:
    """Of the runs that have all arms: the score of each, and the errors removed."""
    rows = []
    for key, with_elmo in scores.items():
        task, arm, *budget = key.split("/")
        if arm == "elmo":
            default, without = (
                scores["/".join([task, other, *budget])]
                for other in ("spacy_default", "no_listener")
            )
            removed = (with_elmo - default) / (1 - default)
            rows.append(
                f"| {TASKS[task]} | {default:.4f} | {without:.4f} | {with_elmo:.4f} "
                f"| {removed:.0%} |"
            )
    return rows


def curve(runs: List[Path]) -> List[Tuple[int, float]]:
    """Tokens read, and held-out perplexity, every few million tokens."""
    points: List[Tuple[int, float]] = []
    before = 0
    for run in runs:
        records: List[Any] = list(srsly.read_jsonl(run / "log.jsonl"))
        for record in records:
            tokens = before + record["tokens"]
            due = not points or tokens - points[-1][0] >= CURVE_TOKENS
            if "average" in record and (due or "final" in record):
                points.append((tokens, round(record["average"], 2)))
        before += records[-1]["tokens"]
    return points


def describe(
    settings: Any, bilm: BiLM, trained: Path, output: Path, vocab_size: int
) -> Dict[str, Any]:
    """What the card says about geometry, size and training."""
    training, options = settings.training, settings.options
    last = last_record(trained)
    return {
        **vars(options.lstm),
        **{k: v for k, v in vars(training).items() if type(v) in (int, float, str)},
        **vars(training.optimizer),
        "optimizer": {"adamw": "AdamW", "adagrad": "Adagrad"}[training.optimizer.name],
        "n_samples": training.softmax.n_samples,
        "ascii_quotes": settings.corpus.ascii_quotes,
        "n_filters": options.char_cnn.n_filters,
        "n_highway": options.char_cnn.n_highway,
        "widths": ", ".join(str(w) for w, _ in options.char_cnn.filters),
        "layers": options.n_layers,
        "width": options.width,
        "parameters": sum(p.numel() for p in bilm.parameters()),
        "vocab_size": vocab_size,
        "megabytes": sum(f.stat().st_size for f in output.iterdir()) / 1e6,
        "tokens": last["tokens"],
        "steps": last["step"],
        "epochs": last["epoch"],
        "hours": last["seconds"] / 3600,
        "machine": machine(),
    }


def last_record(trained: Path) -> Dict[str, Any]:
    """Of a run's log."""
    log = srsly.read_jsonl(trained / "log.jsonl")
    return dict([record for record in log if "loss" in record][-1])


def machine() -> str:
    """The processor, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    names = [
        line.split(":")[1].strip()
        for line in (info.read_text().split("\n") if info.is_file() else ())
        if line.startswith("model name")
    ]
    name = names[0] if names else platform.processor()
    return f"{name}, {os.cpu_count()} cores"


if __name__ == "__main__":
    typer.run(main)
