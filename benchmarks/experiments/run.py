"""Run an experiment: tasks by arms by seeds, each a `python -m spacy train`.

    python run.py weighting/experiment.yml --data ../../shared/data/eval

An experiment names its tasks (tasks/NAME.cfg), and for each arm an encoder
(encoders/NAME.cfg) and settings of it. Runs whose result is there already are not run
again. Writes results.json, results.md and, if the experiment asks for one, a plot.
"""

import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Dict, List

import spacy
import srsly
import typer
from data import convert
from spacy.language import DEFAULT_CONFIG_PRETRAIN_PATH, Language
from spacy.tokens import DocBin
from spacy.util import load_config
from thinc.api import Config

from spacy_elmo.weights import resolve

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import machine  # noqa: E402

Run = Dict[str, Any]

# Of an update
WORDS = 1000

CONVERTING = Lock()

# `python -m spacy`, which prints how much memory it has had (Linux).
SPACY = """
import atexit, runpy
atexit.register(lambda: print(open("/proc/self/status").read()))
runpy.run_module("spacy", run_name="__main__")
"""


def main(
    experiment: Path,
    data: Annotated[Path, typer.Option(help="Folder of the evaluation sets")],
    weights: str = "en_elmo_sm",
    work: Path = HERE / "work",
    fresh: bool = False,
    jobs: Annotated[int, typer.Option(help="Runs at a time, which share cores")] = 2,
) -> None:
    """Run what has no result yet, and write the tables."""
    # Components that the configs name.
    import components  # noqa: F401

    plan = srsly.read_yaml(experiment)
    folder = experiment.parent
    path = folder / "results.json"
    runs = runs_of(plan)
    done = {} if fresh else read(path)["runs"]
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {
            pool.submit(train_once, run, data, weights, work, jobs): key
            for key, run in runs.items()
            if key not in done
        }
        for future in as_completed(waiting):
            if future.exception():
                pool.shutdown(cancel_futures=True)
            done[waiting[future]] = future.result()
            in_order = {key: done[key] for key in runs if key in done}
            write_json(path, {"machine": machine(), "runs": in_order})
    results = read(path)
    table = render(plan, results)
    (folder / "results.md").write_text(table, encoding="utf8")
    if "plot" in plan:
        from plots import PLOTS

        PLOTS[plan["plot"]](plan, results["runs"], folder / "results.png")
    print(table)


def runs_of(plan: Dict[str, Any]) -> Dict[str, Run]:
    """A key and the settings for each run, seed after seed."""
    return {
        f"{task}/{arm}/{limit or 'all'}/{seed}": {
            "task": task, "arm": arm, "limit": limit, "seed": seed,
            **plan["tasks"][task],
            **{"set": {}, **settings},
        }
        for seed in plan["seeds"]
        for task in plan["tasks"]
        for limit in plan["tasks"][task].get("limits", [0])
        for arm, settings in plan["arms"].items()
    }  # fmt: skip


def make_config(run: Run) -> Config:
    """The config of a run: the base, the task, and the encoder in its component."""
    config = Config().from_disk(HERE / "tasks" / "base.cfg", interpolate=False)
    task = Config().from_disk(HERE / "tasks" / f"{run['task']}.cfg")
    info = task.pop("experiment")
    config = config.merge(task)
    encoder = Config().from_disk(HERE / "encoders" / f"{run['encoder']}.cfg")
    for key, value in {**run["set"], **run.get("encoder_set", {})}.items():
        set_path(encoder, key, value)
    for embed in nodes(encoder, "spacy.MultiHashEmbed.v2"):
        if info["data"] == "srl_ewt":  # the predicate is marked as an entity
            embed["attrs"] = [*embed["attrs"], "ENT_TYPE"]
            embed["rows"] = [*embed["rows"], 10]
    config["components"][info["component"]]["model"]["tok2vec"] = encoder["tok2vec"]
    if any(nodes(encoder, "spacy_elmo.ELMoListener.v1")):
        config["nlp"]["pipeline"].insert(0, "elmo")
        model = {
            "@architectures": "spacy_elmo.BiLM.v1",
            "weights": "${paths.elmo}",
            "sentence_cache_path": "${paths.cache}",
        }
        config["components"]["elmo"] = {"factory": "elmo", "model": model}
    config["corpora"]["train"]["limit"] = run["limit"]
    config["corpora"]["dev"]["limit"] = run.get("dev_limit", 0)
    training = config["training"]
    training["max_steps"] = run["steps"]
    training["eval_frequency"] = run.get("evaluate_every", run["steps"])
    training["batcher"]["size"] = run.get("words", WORDS)
    if "init_tok2vec" in run:
        share_tok2vec(config, info["component"])
    return config


def share_tok2vec(config: Config, component: str) -> None:
    """Make the encoder a component of its own, which `spacy pretrain` knows."""
    model = config["components"][component]["model"]
    config["components"]["tok2vec"] = {"factory": "tok2vec", "model": model["tok2vec"]}
    config["nlp"]["pipeline"].insert(0, "tok2vec")
    width = model["tok2vec"]["encode"]["width"]
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": width}
    model["tok2vec"] = {**listener, "upstream": "tok2vec"}
    defaults = load_config(DEFAULT_CONFIG_PRETRAIN_PATH)
    config["pretraining"] = defaults["pretraining"]


def set_path(config: Any, key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        config = config.setdefault(part, {})
    if value is None:
        config.pop(last, None)
    else:
        config[last] = value


def nodes(config: Any, architecture: str) -> List[Any]:
    """Every block of an architecture."""
    if not isinstance(config, dict):
        return []
    mine = [config] if config.get("@architectures") == architecture else []
    return mine + [n for v in config.values() for n in nodes(v, architecture)]


def train_once(run: Run, data: Path, weights: str, work: Path, jobs: int) -> Run:
    """Experiments share the runs that they have in common; other weights of the biLM
    leave those without it as they are.
    """
    if "weights" in run:
        weights = str(work / run["weights"])
    has_elmo = "elmo" in make_config(run)["nlp"]["pipeline"]
    said = {k: v for k, v in run.items() if k not in ("name", "arm")}
    said["biLM"] = digest(weights) if has_elmo else None
    key = hashlib.sha256(srsly.json_dumps(said, sort_keys=True).encode()).hexdigest()
    path = work / "results" / f"{key}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, train(run, data, weights, work, jobs))
    return dict(srsly.read_json(path))


def digest(weights: str) -> str:
    file = resolve(weights) / "weights.hdf5"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def train(run: Run, data: Path, weights: str, work: Path, jobs: int) -> Run:
    info = Config().from_disk(HERE / "tasks" / f"{run['task']}.cfg")["experiment"]
    with CONVERTING:
        train, dev = (
            convert(data, info["data"], part, work / "corpus")
            for part in ("train", "dev")
        )
    cache, made = work / "cache", work
    (work / "runs").mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=work / "runs"))
    config_path, log = work / "config.cfg", work / "log.jsonl"
    make_config(run).to_disk(config_path)
    output = work / "output"
    command = [
        sys.executable, "-c", SPACY, "train", str(config_path),
        "--code", str(HERE / "components.py"), "--output", str(output),
        "--paths.train", str(train), "--paths.dev", str(dev),
        "--paths.elmo", weights, "--paths.cache", str(cache),
        "--system.seed", str(run["seed"]), "--training.logger.output_file", str(log),
    ]  # fmt: skip
    for key in ("vectors", "init_tok2vec"):
        if key in run:
            command += [f"--initialize.{key}", str(made / run[key])]
    start = time.perf_counter()
    printed = work / "printed.txt"
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    with printed.open("w") as file:
        done = subprocess.run(
            command, check=False, stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": threads},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{printed.read_text()}")
    seconds = time.perf_counter() - start
    n_words = run["steps"] * run.get("words", WORDS)
    records = list(srsly.read_jsonl(log))
    memory = re.findall(r"VmHWM:\s*(\d+)", printed.read_text())[-1]
    nlp = spacy.load(output / "model-best")
    found: Run = {
        "score": max(record["score"] for record in records),
        "curve": [[r["step"], round(r["score"], 4)] for r in records],
        # With the start of the process and the evaluations
        "training_words_per_second": round(n_words / seconds),
        "words_per_second": round(words_per_second(nlp, dev)),
        "memory_mb": int(memory) // 1024,
        "disk_mb": round(size_of(output / "model-best") / 2**20, 1),
    }
    if "elmo" in nlp.pipe_names:
        from spacy_elmo.cli.mix import get_mixes

        found["mixes"] = get_mixes(nlp)
    shutil.rmtree(work)
    print(f"{run['task']}, {run['arm']}, {run['limit']}, {run['seed']}: {found}")
    return found


def words_per_second(nlp: Language, path: Path, n_words: int = 3000) -> float:
    """Of prediction, on the first Docs of a file; the caches know none of them."""
    from components import to_predict

    docs, n = [], 0
    for reference in DocBin().from_disk(path).get_docs(nlp.vocab):
        docs.append(to_predict(reference))
        n += len(reference)
        if n >= n_words:
            break
    start = time.perf_counter()
    for _ in nlp.pipe(docs):
        pass
    return n / (time.perf_counter() - start)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def render(plan: Dict[str, Any], results: Dict[str, Any]) -> str:
    """Means and deviations over the seeds: tasks by arms."""
    arms, runs = list(plan["arms"]), results["runs"]
    lines = [
        f"# {plan['title']}", "", plan["description"].strip(), "",
        f"Dev scores, mean and deviation over {len(plan['seeds'])} seeds.", "",
        f"| task | {' | '.join(arms)} |", "|---" * (1 + len(arms)) + "|",
    ]  # fmt: skip
    for task, settings in plan["tasks"].items():
        for limit in settings.get("limits", [0]):
            cells = []
            for arm in arms:
                scores = scores_of(plan, runs, task, arm, limit)
                cells.append(cell(scores))
            size = f" ({limit:,} Docs)" if limit else ""
            lines.append(f"| {settings['name']}{size} | {' | '.join(cells)} |")
    if plan.get("costs"):
        lines += ["", *costs(plan, runs)]
    lines += ["", f"Machine: {results['machine']}.", ""]
    return "\n".join(lines)


def costs(plan: Dict[str, Any], runs: Dict[str, Run]) -> List[str]:
    """What each arm costs: medians over tasks and seeds."""
    lines = [
        "| cost | training, words/s | prediction, words/s | memory, MB | on disk, MB |",
        "|---|---|---|---|---|",
    ]
    keys = "training_words_per_second", "words_per_second", "memory_mb", "disk_mb"
    for arm in plan["arms"]:
        mine = [run for key, run in runs.items() if key.split("/")[1] == arm]
        if mine:
            medians = (statistics.median(run[key] for run in mine) for key in keys)
            lines.append(f"| {arm} | {' | '.join(f'{m:,.0f}' for m in medians)} |")
    return lines


def scores_of(
    plan: Dict[str, Any], runs: Dict[str, Run], task: str, arm: str, limit: int
) -> List[float]:
    keys = [f"{task}/{arm}/{limit or 'all'}/{seed}" for seed in plan["seeds"]]
    return [runs[key]["score"] for key in keys if key in runs]


def cell(scores: List[float]) -> str:
    if not scores:
        return "-"
    mean = f"{100 * statistics.mean(scores):.1f}"
    if len(scores) < 2:
        return mean
    return f"{mean} ± {100 * statistics.stdev(scores):.1f}"


def read(path: Path) -> Dict[str, Any]:
    if path.is_file():
        return dict(srsly.read_json(path))
    return {"machine": None, "runs": {}}


def write_json(path: Path, results: Dict[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(results, indent=1) + "\n", encoding="utf8")
    unfinished.replace(path)


if __name__ == "__main__":
    typer.run(main)
