"""Dev scores with and without ELMo, same data and steps: README's table.

    python benchmarks/accuracy.py --data ../shared/data/eval --output benchmarks

Three arms a task: the config with ELMo; the same config without its listener; and
spaCy's default tok2vec (HashEmbedCNN). Each arm is a `python -m spacy train` of its
own. Arms that have a result already are not run again (--fresh runs them all).
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import spacy
from harness import machine
from spacy.tokens import Doc, DocBin
from spacy.training import biluo_tags_to_spans, iob_to_biluo
from spacy.vocab import Vocab
from thinc.api import Config

ROOT = Path(__file__).resolve().parent.parent
# task: folder of the data, config, component, score
TASKS = {
    "tagger": ("ewt", "configs/tagger.cfg", "tagger", "tag_acc"),
    "ner": ("uner_ewt", "configs/ner.cfg", "ner", "ents_f"),
}
ARMS = ("elmo", "no_listener", "spacy_default")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="Folder of the sets")
    parser.add_argument("--output", type=Path, required=True, help="For accuracy.json")
    parser.add_argument("--work", type=Path, default=Path("training/accuracy"))
    parser.add_argument("--weights", default="en_elmo_sm")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--words", type=int, default=1200, help="Words an update")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--fresh", action="store_true")
    args = parser.parse_args()
    results_path = args.output / "accuracy.json"
    for task in args.tasks:
        paths = [convert(args.data, args.work, task, part) for part in ("train", "dev")]
        for arm in args.arms:
            for seed in args.seeds:
                results = read_results(results_path)
                key = f"{task}/{arm}/{args.steps}x{args.words}/{seed}"
                if key in results["runs"] and not args.fresh:
                    continue
                run = train(task, arm, seed, *paths, args)
                results = read_results(results_path)
                results["runs"][key] = run
                results["machine"] = machine()
                results_path.write_text(json.dumps(results, indent=2) + "\n")
    table = render(read_results(results_path))
    (args.output / "accuracy.md").write_text(table)
    print(table)


def convert(data: Path, work: Path, task: str, part: str) -> Path:
    """A TSV of the evaluation data -> .spacy, a sentence a Doc."""
    folder = TASKS[task][0]
    target = work / f"{folder}_{part}.spacy"
    if not target.is_file():
        work.mkdir(parents=True, exist_ok=True)
        vocab = Vocab()
        docs = DocBin()
        for rows in sentences(data / folder / f"{part}.tsv"):
            docs.add(make_doc(vocab, task, rows))
        docs.to_disk(target)
    return target


def sentences(path: Path) -> Iterator[List[List[str]]]:
    rows: List[List[str]] = []
    for line in path.read_text(encoding="utf8").split("\n"):
        if line.startswith("# "):
            continue
        if line:
            rows.append(line.split("\t"))
        elif rows:
            yield rows
            rows = []


def make_doc(vocab: Vocab, task: str, rows: List[List[str]]) -> Doc:
    if task == "tagger":
        return Doc(vocab, words=[r[1] for r in rows], tags=[r[4] for r in rows])
    doc = Doc(vocab, words=[r[0] for r in rows])
    doc.ents = biluo_tags_to_spans(doc, iob_to_biluo([r[1] for r in rows]))
    return doc


def make_config(task: str, arm: str, n_words: int) -> Config:
    """The config of an arm, from the project's config with ELMo."""
    config = Config().from_disk(ROOT / TASKS[task][1], interpolate=False)
    config["training"]["batcher"]["size"] = n_words
    tok2vec = config["components"][TASKS[task][2]]["model"]["tok2vec"]
    if arm != "elmo":
        config["nlp"]["pipeline"].remove("elmo")
        del config["components"]["elmo"]
        del config["paths"]["elmo"]
        tok2vec["embed"] = tok2vec["embed"]["embed"]
    if arm == "spacy_default":
        tok2vec.clear()
        tok2vec.update(
            {
                "@architectures": "spacy.HashEmbedCNN.v2",
                "pretrained_vectors": None,
                "width": 96,
                "depth": 4,
                "embed_size": 2000,
                "window_size": 1,
                "maxout_pieces": 3,
                "subword_features": True,
            }
        )
    return config


def train(
    task: str, arm: str, seed: int, train: Path, dev: Path, args: argparse.Namespace
) -> Dict[str, Any]:
    _, _, component, score = TASKS[task]
    output = args.work / f"{task}-{arm}-{seed}"
    config_path = args.work / f"{task}-{arm}.cfg"
    make_config(task, arm, args.words).to_disk(config_path, interpolate=False)
    command = [
        sys.executable, "-m", "spacy", "train", str(config_path),
        "--output", str(output),
        "--paths.train", str(train), "--paths.dev", str(dev),
        "--system.seed", str(seed),
        "--training.max_steps", str(args.steps),
        "--training.eval_frequency", str(max(1, args.steps // 3)),
    ]  # fmt: skip
    if arm == "elmo":
        command += ["--paths.elmo", args.weights]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
    nlp = spacy.load(output / "model-best")
    run = {
        "score": nlp.meta["performance"][score],
        "performance": {
            name: value
            for name, value in nlp.meta["performance"].items()
            if isinstance(value, float)
        },
        "seconds": round(seconds, 1),
        "command": " ".join(["python", *command[1:]]),
    }
    if arm == "elmo":
        from spacy_elmo.cli.mix import get_mixes

        run["mixes"] = get_mixes(nlp)
    return run


def read_results(path: Path) -> Dict[str, Any]:
    if path.is_file():
        return json.loads(path.read_text())
    return {"machine": None, "runs": {}}


def render(results: Dict[str, Any]) -> str:
    """A table of dev scores: tasks by arms, mean over the seeds."""
    budgets = sorted({key.split("/")[2] for key in results["runs"]})
    lines = []
    for budget in budgets:
        steps, words = budget.split("x")
        lines += [
            f"{steps} updates of {words} words; dev.",
            "",
            "| task | spaCy's default tok2vec | without the listener | with ELMo | "
            "errors removed |",
            "|---|---|---|---|---|",
        ]
        for task, (folder, _, _, score) in TASKS.items():
            means = [mean(results, task, arm, budget) for arm in reversed(ARMS)]
            default, _, elmo = means
            removed = "-"
            if default is not None and elmo is not None:
                removed = f"{(elmo - default) / (1 - default):.1%}"
            cells = ["-" if m is None else f"{m:.4f}" for m in means]
            lines.append(f"| {folder}, {score} | {' | '.join(cells)} | {removed} |")
        lines.append("")
    return "\n".join([*lines, f"Machine: {results['machine']}.", ""])


def mean(results: Dict[str, Any], task: str, arm: str, budget: str) -> Optional[float]:
    prefix: Tuple[str, ...] = (task, arm, budget)
    scores = [
        run["score"]
        for key, run in results["runs"].items()
        if tuple(key.split("/")[:3]) == prefix
    ]
    return sum(scores) / len(scores) if scores else None


if __name__ == "__main__":
    main()
