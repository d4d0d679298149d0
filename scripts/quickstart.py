"""Train a tagger and an entity recognizer on the sample corpus, with ELMo and
without, and show what came out. `make train` runs it, from the root of the project.

Arguments are config overrides for both runs: --training.max_steps 50
"""

import sys
from pathlib import Path
from typing import Any, Dict, List

import spacy
import srsly
from spacy.cli import app
from spacy.util import load_config
from wasabi import msg

from spacy_elmo.cli.mixes import mix_cli
from spacy_elmo.recipe.configs import without_elmo

CONFIG = Path("configs/ner_tagger.cfg")
CORPUS = Path("corpus")
OUTPUT = Path("training/quickstart")
# The sample is small: 15 passes over it.
SETTINGS = ["--training.max_steps", "600", "--training.eval_frequency", "100"]
SCORES = ["tag_acc", "ents_f", "ents_p", "ents_r"]
SENTENCE = "Last year Eleanor wrote a short play for Chicago."


def main(overrides: List[str]) -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    run_spacy("convert", "assets", CORPUS, "-c", "iob", "-n", 10)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    baseline = OUTPUT / "no_elmo.cfg"
    without_elmo(load_config(CONFIG)).to_disk(baseline)

    scores = {
        "ELMo": train(CONFIG, OUTPUT / "elmo", overrides),
        "no ELMo": train(baseline, OUTPUT / "no_elmo", overrides),
    }
    show(scores, OUTPUT / "elmo" / "model-best")


def train(config: Path, output: Path, overrides: List[str]) -> Dict[str, Any]:
    """Train a pipeline and evaluate the best of its checkpoints on the dev part."""
    dev = CORPUS / "sample_dev.spacy"
    paths = ["--paths.train", CORPUS / "sample_train.spacy", "--paths.dev", dev]
    run_spacy("train", config, "--output", output, *paths, *SETTINGS, *overrides)
    metrics = output / "metrics.json"
    run_spacy("evaluate", output / "model-best", dev, "--output", metrics)
    return dict(srsly.read_json(metrics))


def show(scores: Dict[str, Dict[str, Any]], pipeline: Path) -> None:
    msg.divider("Scores on the dev part")
    rows = [
        [name, *(f"{100 * found[score]:.1f}" for score in SCORES)]
        for name, found in scores.items()
    ]
    msg.table(rows, header=["", *SCORES], divider=True, aligns=["l", *"rrrr"])
    msg.divider("What each component takes from the biLM")
    mix_cli(str(pipeline), as_json=False)
    doc = spacy.load(pipeline)(SENTENCE)
    print(f"nlp = spacy.load({str(pipeline)!r})")
    print(f"doc = nlp({SENTENCE!r})")
    print(f"doc[3]._.elmo.shape = {doc[3]._.elmo.shape}")


def run_spacy(*args: Any) -> None:
    """As on the command line, but without starting another Python."""
    print("$ python -m spacy", *args, flush=True)
    app(list(map(str, args)), prog_name="python -m spacy", standalone_mode=False)


if __name__ == "__main__":
    main(sys.argv[1:])
