"""Recipes of pretraining on the same budget: perplexity, and what it is worth to tasks.

    python benchmarks/recipes.py --text "lm/openstax.txt.xz" --heldout lm/heldout.txt \
        --data eval --work FOLDER --output benchmarks

AdamW or the paper's Adagrad; the LSTM state started from zero at each sentence or
carried along the rows. Tasks start from the zero state, whatever the model was trained
with. Runs that are there already are not run again.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import srsly

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "experiments"))

from harness import machine  # noqa: E402
from run import cell, scores_of  # noqa: E402
from run import main as run_experiment  # noqa: E402

PAPER = [
    "--training.optimizer.name", "adagrad", "--training.optimizer.learn_rate", "0.2",
    "--training.optimizer.warmup_steps", "0", "--training.optimizer.decay", "none",
    "--training.optimizer.weight_decay", "0.0", "--training.grad_clip", "10.0",
]  # fmt: skip
RECIPES = {
    "AdamW, zero state": ["--training.state", "zero"],
    "AdamW, carried state": ["--training.state", "carried"],
    "Adagrad, zero state": ["--training.state", "zero", *PAPER],
}
PLAN = {
    "title": "Recipes", "description": "The tagger and NER of configs/.",
    "seeds": [0, 1],
    "tasks": {
        "tags_ewt": {"name": "tags, EWT", "steps": 200, "limits": [4000]},
        "ner_uner": {"name": "NER, UNER-EWT", "steps": 200, "limits": [4000]},
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--heldout", required=True)
    parser.add_argument("--data", type=Path, required=True, help="Evaluation sets")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=2_000_000)
    args = parser.parse_args()
    rows = {name: measure(name, args) for name in RECIPES}
    results = {"machine": machine(), "tokens": args.tokens, "recipes": rows}
    srsly.write_json(args.output / "recipes.json", results)
    table = render(results)
    (args.output / "recipes.md").write_text(table, encoding="utf8")
    print(table)


def measure(name: str, args: argparse.Namespace) -> Dict[str, Any]:
    folder = args.work / name.replace(", ", "_").replace(" ", "_").lower()
    if not (folder / "weights.hdf5").is_file():
        for other in args.work.glob("*/corpus"):  # the same text for all
            if not (folder / "corpus").exists():
                shutil.copytree(other, folder / "corpus")
        elmo(
            "pretrain", str(ROOT / "configs" / "pretrain_small.cfg"), str(folder),
            "--paths.train", args.text, "--paths.dev", args.heldout,
            "--training.max_tokens", str(args.tokens), *RECIPES[name],
        )  # fmt: skip
    found: Dict[str, Any] = {"perplexity": {}}
    for state in ("zero", "carried"):
        output = folder / f"{state}.json"
        if not output.is_file():
            elmo("evaluate", str(folder), args.heldout, "--state", state,
                 "--output", str(output))  # fmt: skip
        found["perplexity"][state] = srsly.read_json(output)["average"]
    return {**found, "tasks": scores(folder, args)}


def elmo(*args: str) -> None:
    subprocess.run([sys.executable, "-m", "spacy", "elmo", *args], check=True)


def scores(weights: Path, args: argparse.Namespace) -> Dict[str, List[float]]:
    plan = {**PLAN, "arms": {"ELMo": {"encoder": "cnn_elmo"}}}
    path = weights / "tasks" / "experiment.yml"
    path.parent.mkdir(exist_ok=True)
    srsly.write_yaml(path, plan)
    run_experiment(path, args.data, weights=str(weights), work=args.work / "tasks")
    runs = srsly.read_json(path.with_name("results.json"))["runs"]
    tasks: Any = PLAN["tasks"]
    return {
        task: scores_of(plan, runs, task, "ELMo", settings["limits"][0])
        for task, settings in tasks.items()
    }


def render(results: Dict[str, Any]) -> str:
    lines = [
        f"Recipes of `pretrain_small.cfg` on {results['tokens']:,} tokens of the same "
        "text; held-out perplexity by the state that sentences start from, and dev "
        "scores of two seeds after 200 updates.",
        "",
        "| recipe | perplexity, zero | carried | tags, EWT | NER, UNER-EWT |",
        "|---|---|---|---|---|",
    ]
    for name, row in results["recipes"].items():
        lines.append(
            f"| {name} | {row['perplexity']['zero']:.1f} "
            f"| {row['perplexity']['carried']:.1f} "
            f"| {cell(row['tasks']['tags_ewt'])} | {cell(row['tasks']['ner_uner'])} |"
        )
    return "\n".join([*lines, "", f"Machine: {results['machine']}.", ""])


if __name__ == "__main__":
    main()
