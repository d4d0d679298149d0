"""Recipes of pretraining on the same budget: perplexity, and what it is worth to tasks.

    python benchmarks/recipes.py --text "lm/openstax.txt.xz" --heldout lm/heldout.txt \
        --data eval --work FOLDER --output benchmarks

AdamW or the paper's Adagrad; the LSTM state starts from zero at each sentence or is
carried along the rows. Tasks start from the zero state, whatever the model was trained
with. Runs that have a result are not repeated.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any, Dict

import srsly
from harness import ROOT, machine, make_parser, run_python, save, table

sys.path.insert(0, str(ROOT / "benchmarks" / "experiments"))

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
SET = {"training.max_steps": 200, "training.eval_frequency": 200}
PLAN: Dict[str, Any] = {
    "title": "Recipes", "description": "Tags and NER on each biLM.", "seeds": [0, 1],
    "tasks": {
        "tags": {"cfg": "tags", "data": "ewt", "limits": [4000], "set": SET,
                 "scores": {"tag_acc": "tags, EWT"}},
        "ner": {"cfg": "ner", "data": "uner_ewt", "limits": [4000], "set": SET,
                "scores": {"ents_f": "NER, UNER-EWT"}},
    },
    "arms": {
        name: {"encoder": "cnn_elmo", "weights": name.replace(" ", "_")}
        for name in RECIPES
    },
}  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--heldout", required=True)
    parser.add_argument("--data", type=Path, required=True, help="Evaluation sets")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=2_000_000)
    args = parser.parse_args()
    perplexity = {name: pretrain(name, args) for name in RECIPES}
    plan = args.work / "recipes" / "experiment.yml"
    plan.parent.mkdir(parents=True, exist_ok=True)
    srsly.write_yaml(plan, PLAN)
    run_experiment(plan, args.data, work=args.work)
    runs = srsly.read_json(plan.with_name("results.json"))["runs"]
    scores = {
        name: {task: scores_of(PLAN, runs, task, name, 4000) for task in PLAN["tasks"]}
        for name in RECIPES
    }
    results = {
        "machine": machine(), "tokens": args.tokens, "perplexity": perplexity,
        "scores": scores,
    }  # fmt: skip
    save("recipes", results, render(results), args.output)


def pretrain(name: str, args: argparse.Namespace) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Perplexity by the state that sentences start from."""
    folder = args.work / PLAN["arms"][name]["weights"]
    elmo = ("-m", "spacy", "elmo")
    if not (folder / "weights.hdf5").is_file():
        for other in args.work.glob("*/corpus"):  # the same text for all
            if not (folder / "corpus").exists():
                shutil.copytree(other, folder / "corpus")
        run_python(
            *elmo, "pretrain", ROOT / "configs" / "pretrain_small.cfg", folder,
            "--paths.train", args.text, "--paths.dev", args.heldout,
            "--training.max_tokens", args.tokens, *RECIPES[name],
        )  # fmt: skip
    perplexity = {}
    for state in ("zero", "carried"):
        output = folder / f"{state}.json"
        if not output.is_file():
            options = ("--state", state, "--output", output)
            run_python(*elmo, "evaluate", folder, args.heldout, *options)
        perplexity[state] = srsly.read_json(output)["average"]
    return perplexity


def render(results: Dict[str, Any]) -> str:
    rows = [
        [name, *found.values(), *map(cell, results["scores"][name].values())]
        for name, found in results["perplexity"].items()
    ]
    header = ["recipe", "perplexity, zero", "carried", "tags", "NER"]
    return "\n".join(
        [
            f"Recipes of `pretrain_small.cfg` on {results['tokens']:,} tokens of the "
            "same text: held-out perplexity by the state that sentences start from, "
            "and dev scores of two seeds after 200 updates.\n",
            table(header, rows, ".1f"),
            f"Machine: {results['machine']}.\n",
        ]
    )


if __name__ == "__main__":
    main()
