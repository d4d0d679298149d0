"""Make the bundled model out of a pretraining folder: float16 weights, vocabulary,
config, metadata and the model card.

    python scripts/bundle.py my_bilm heldout.txt spacy_elmo/weights/en_elmo_sm [EARLIER]

EARLIER are the folders of the runs that it started from, if any.
"""

import os
import platform
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Dict, List, Optional

import srsly
import typer

from spacy_elmo.about import __version__
from spacy_elmo.bilm import BiLM
from spacy_elmo.cli.evaluate import evaluate
from spacy_elmo.pretraining.initialization import initialize
from spacy_elmo.pretraining.model import read_softmax, write_model
from spacy_elmo.pretraining.settings import read_settings
from spacy_elmo.pretraining.softmax import Softmax
from spacy_elmo.pretraining.vocabulary import read_vocabulary, write_vocabulary

TEMPLATE = Path(__file__).parent / "card_en_elmo_sm.md"


def main(
    trained: Path,
    heldout: Path,
    output: Path,
    earlier: Annotated[Optional[List[Path]], typer.Argument()] = None,
) -> None:
    """Write the model and its card."""
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
    card = TEMPLATE.read_text(encoding="utf8").format(**values, **perplexity)
    (output / "README.md").write_text(card, encoding="utf8")
    meta = {
        "name": output.name,
        "lang": settings.nlp["lang"],
        "version": __version__,
        "license": "MIT",
        "perplexity": perplexity,
        "training": {k: values[k] for k in ("tokens", "steps", "epochs", "hours")},
    }
    srsly.write_json(output / "meta.json", meta)
    print(card)


def describe(
    settings: Any, bilm: BiLM, trained: Path, output: Path, vocab_size: int
) -> Dict[str, Any]:
    """What the card says about geometry, size and training."""
    training, options = settings.training, settings.options
    last = last_record(trained)
    return {
        **vars(options.lstm),
        **{k: v for k, v in vars(training).items() if k != "optimizer"},
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
