"""Dev scores with and without ELMo, on the same data and steps: README's table.

    python benchmarks/accuracy.py --data eval --output benchmarks

Four arms for each task: the config with ELMo; the same, trained in int8; the same
config without its listener, but with the words themselves (NORM) among its attributes;
spaCy's default tok2vec (HashEmbedCNN) and dropout. Each is a `python -m spacy train`
of its own. --steps 0 trains as the config says: until the dev score no longer rises.
Runs that have a result are not repeated (--fresh repeats them).
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Dict, List

import spacy
from experiments.data import convert
from harness import ROOT, machine, machines, make_parser, run_python, save, table
from spacy.language import Language
from spacy.training import Corpus
from thinc.api import Config

from spacy_elmo.pipeline.learned_weights import get_mixes
from spacy_elmo.recipe.configs import without_elmo

# task: data, config, component, score
TASKS = {
    "tagger": ("ewt", "tagger.cfg", "tagger", "tag_acc"),
    "ner": ("uner_ewt", "ner.cfg", "ner", "ents_f"),
    "ner_wnut": ("wnut17", "ner.cfg", "ner", "ents_f"),
}
ARMS = {
    "spacy_default": "spaCy's default tok2vec",
    "no_listener": "without the listener",
    "elmo": "with ELMo",
    "elmo_int8": "trained in int8",
}
DEFAULT_TOK2VEC = {
    "@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": 96,
    "depth": 4, "embed_size": 2000, "window_size": 1, "maxout_pieces": 3,
    "subword_features": True,
}  # fmt: skip
DEFAULT_DROPOUT = 0.1
TO_THE_END = "to the end"
WORDS = {
    "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE"], "rows": [5000, 1000, 2500, 2500],
}  # fmt: skip

Runs = Dict[str, Dict[str, Any]]


def main() -> None:
    parser = make_parser(__doc__, threads=False)
    parser.add_argument("--data", type=Path, required=True, help="Evaluation sets")
    parser.add_argument("--work", type=Path, default=Path("training/accuracy"))
    parser.add_argument("--weights", default="en_elmo_sm")
    parser.add_argument("--steps", type=int, default=600, help="0: to the end")
    parser.add_argument("--words", type=int, default=1200, help="Of an update")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["tagger", "ner"])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--fresh", action="store_true")
    args = parser.parse_args()
    done = args.output / "accuracy.json" if args.output else None
    runs: Runs = {}
    if done is not None and done.is_file():
        runs = json.loads(done.read_text())["runs"]
    for task in args.tasks:
        for arm in args.arms:
            for seed in args.seeds:
                budget = f"{args.steps}x{args.words}" if args.steps else TO_THE_END
                key = f"{task}/{arm}/{budget}/{seed}"
                if args.fresh or key not in runs:
                    runs[key] = train(task, arm, seed, args)
                    save("accuracy", {"runs": runs}, render(runs), args.output)
                elif arm.startswith("elmo") and not is_of(runs[key], args.weights):
                    raise SystemExit(f"{done}: {key} is of another biLM. Use --output.")


def is_of(run: Dict[str, Any], weights: str) -> bool:
    return str(run["command"]).endswith(f"--paths.elmo {weights}")


def make_config(task: str, arm: str, args: argparse.Namespace) -> Config:
    """The config of an arm, from the project's config with ELMo."""
    _, name, component, _ = TASKS[task]
    config = Config().from_disk(ROOT / "configs" / name, interpolate=False)
    if args.steps:
        config["training"]["batcher"]["size"] = args.words
        config["training"]["max_steps"] = args.steps
        config["training"]["eval_frequency"] = max(1, args.steps // 3)
    if arm == "elmo_int8":
        config["components"]["elmo"]["model"]["precision"] = "int8"
    elif arm != "elmo":
        config = without_elmo(config)
    model = config["components"][component]["model"]
    if arm == "no_listener":
        model["tok2vec"]["embed"].update(WORDS)
    if arm == "spacy_default":
        model["tok2vec"] = DEFAULT_TOK2VEC
        config["training"]["dropout"] = DEFAULT_DROPOUT
    return config


def train(task: str, arm: str, seed: int, args: argparse.Namespace) -> Dict[str, Any]:
    data, _, _, score = TASKS[task]
    train, dev = (
        convert(args.data, data, part, args.work) for part in ("train", "dev")
    )
    config = args.work / f"{task}-{arm}.cfg"
    make_config(task, arm, args).to_disk(config, interpolate=False)
    output = args.work / f"{task}-{arm}-{seed}"
    command = [
        "-m", "spacy", "train", config, "--output", output, "--paths.train", train,
        "--paths.dev", dev, "--system.seed", seed,
    ]  # fmt: skip
    if arm.startswith("elmo"):
        command += ["--paths.elmo", args.weights]
    start = time.perf_counter()
    run_python(*command)
    seconds = time.perf_counter() - start
    nlp = spacy.load(output / "model-best")
    return {
        "machine": machine(),
        "score": nlp.meta["performance"][score],
        "seconds": round(seconds, 1),
        "command": " ".join(map(str, ["python", *command])),
        **(of_elmo(nlp, output / "model-best", dev, score) if arm == "elmo" else {}),
    }


def of_elmo(nlp: Language, path: Path, dev: Path, score: str) -> Dict[str, Any]:
    """The mixes, and the score where the biLM runs in int8 after training without."""
    rounded = spacy.load(path, config={"components.elmo.model.precision": "int8"})
    scores = rounded.evaluate(list(Corpus(dev)(rounded)))
    return {"mixes": get_mixes(nlp), "score_int8": scores[score]}


def render(runs: Runs) -> str:
    """Tasks by arms: mean and deviation over the seeds."""
    parts = []
    for budget in sorted({key.split("/")[2] for key in runs}):
        of_budget = [key for key in runs if f"/{budget}/" in key]
        rows = []
        for task, (data, config, _, score) in TASKS.items():
            if not any(key.startswith(f"{task}/") for key in of_budget):
                continue
            scores = [
                of_seeds(runs, f"{task}/{arm}/{budget}/", "score") for arm in ARMS
            ]
            default, elmo = scores[0], scores[2]
            in_int8 = of_seeds(runs, f"{task}/elmo/{budget}/", "score_int8")
            removed = "-"
            if default and elmo:
                mean = statistics.mean(default)
                removed = f"{(statistics.mean(elmo) - mean) / (1 - mean):.1%}"
            cells = map(cell, (*scores, in_int8))
            rows.append([f"{data}, {score}, `{config}`", *cells, removed])
        steps, _, words = budget.partition("x")
        length = f"{steps} updates of {words} words" if words else "As shipped"
        names = [*ARMS.values(), "run in int8", "errors removed"]
        parts += [
            f"{length}; dev.\n", table(["task", *names], rows)
        ]  # fmt: skip
    return "\n".join([*parts, machines(runs) + "\n"])


def of_seeds(runs: Runs, prefix: str, name: str) -> List[float]:
    return [r[name] for key, r in runs.items() if key.startswith(prefix) and name in r]


def cell(scores: List[float]) -> str:
    if not scores:
        return "-"
    mean = f"{statistics.mean(scores):.4f}"
    return f"{mean} ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else mean


if __name__ == "__main__":
    main()
