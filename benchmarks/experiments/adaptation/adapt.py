"""One epoch of the biLM on the text of a task (appendix A.1): perplexity of the task's
dev text and the task's score, before and after.

    python adapt.py --data ../../../../shared/data/eval
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List

import srsly
import typer
from spacy.tokens import DocBin
from spacy.vocab import Vocab

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from data import convert  # noqa: E402
from harness import machine, run_python, save, table  # noqa: E402
from plots import grouped_bars, mean_and_deviation  # noqa: E402
from run import cell, scores_of, weights_file  # noqa: E402
from run import main as run_experiment  # noqa: E402

from spacy_elmo.storage import beside, sha256  # noqa: E402
from spacy_elmo.weights import resolve  # noqa: E402

ROOT = HERE.parents[2]
# Task: its data
TASKS = {"sentiment": "sst5", "names_wnut": "wnut17", "inference": "snli"}
EPOCHS = 1.0


def main(
    data: Annotated[Path, typer.Option(help="Folder of the evaluation sets")],
    weights: str = "en_elmo_sm",
    work: Path = HERE.parent / "work",
) -> None:
    """Write results.md, results.json and results.png."""
    rows: Dict[str, Any] = {}
    # What is there of other weights is theirs.
    work = work / sha256(weights_file(weights))[:12]
    for task, name in TASKS.items():
        texts = [
            plain_text(convert(data, name, part, work / "corpus"), work)
            for part in ("train", "dev")
        ]
        adapted = work / f"adapted_{name}"
        elmo(
            "pretrain", ROOT / "configs" / "pretrain_small.cfg", adapted,
            "--init-from", weights, "--paths.train", texts[0],
            "--paths.dev", texts[1], "--corpus.tokenized", "true",
            "--training.max_epochs", EPOCHS, "--training.rows", 16,
            "--training.optimizer.learn_rate", 0.0005,
            "--training.optimizer.warmup_steps", 20,
            "--vocabulary.path", beside(resolve(weights), "vocab.txt"),
        )  # fmt: skip
        rows[task] = {
            "perplexity": {
                "before": perplexity(weights, texts[1], work),
                "after": perplexity(str(adapted), texts[1], work),
            },
            "score": scores(task, data, weights, adapted, work),
        }
    results = {"machine": machine(), "tasks": rows}
    save("results", results, render(results), HERE)
    found = {
        when: {t: mean_and_deviation(row["score"][when]) for t, row in rows.items()}
        for when in ("before", "after")
    }
    title = "Tasks before and after the adaptation"
    grouped_bars(title, found, HERE / "results.png")


def plain_text(path: Path, work: Path) -> Path:
    """The words of a .spacy file, one sentence per line; each sentence once."""
    target = work / "corpus" / f"{path.stem}.txt"
    docs = DocBin().from_disk(path).get_docs(Vocab())
    lines = (
        " ".join(token.text for token in sent)
        for doc in docs
        for sent in (doc.sents if doc.has_annotation("SENT_START") else [doc])
    )
    target.write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf8")
    return target


def elmo(*args: object) -> None:
    run_python("-m", "spacy", "elmo", *args)


def perplexity(weights: str, text: Path, work: Path) -> float:
    output = work / "perplexity.json"
    elmo("evaluate", weights, text, "--tokenized", "--output", output)
    return float(srsly.read_json(output)["average"])


def scores(
    task: str, data: Path, weights: str, adapted: Path, work: Path
) -> Dict[str, List[float]]:
    plan = HERE / "experiment.yml"
    found = {}
    for name, path in (("before", weights), ("after", str(adapted))):
        folder = work / f"adaptation_{task}_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = srsly.read_yaml(plan)
        settings["tasks"] = {task: settings["tasks"][task]}
        srsly.write_yaml(folder / "experiment.yml", settings)
        run_experiment(folder / "experiment.yml", data, weights=path, work=work)
        runs = srsly.read_json(folder / "results.json")["runs"]
        found[name] = scores_of(settings, runs, task, "ELMo")
    return found


def render(results: Dict[str, Any]) -> str:
    header = ["task", "perplexity before", "after", "score before", "after"]
    rows = [
        [
            task,
            *row["perplexity"].values(),
            *(cell(s, len(s)) for s in row["score"].values()),
        ]
        for task, row in results["tasks"].items()
    ]
    return f"""# Domain adaptation of the biLM (appendix A.1)

{EPOCHS:g} epoch on the words of the task's training part, with the old softmax.
Perplexity of its dev part by the exact softmax; dev scores, mean and deviation over the
seeds.

{table(header, rows, ".1f")}
Machine: {results["machine"]}.
"""


if __name__ == "__main__":
    typer.run(main)
