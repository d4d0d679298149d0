"""Run an experiment: tasks by arms by seeds, each a `python -m spacy train`.

    python run.py downstream/experiment.yml --data PATH --only 'roles/*'

An experiment names its tasks (tasks/NAME.cfg), and for each arm an encoder
(encoders/NAME.cfg) and settings. Runs whose result is there already are not run again,
so that what was stopped goes on. Writes results.json, results.md and, if the experiment
asks for one, a plot.
"""

import fnmatch
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Dict, List

import spacy
import srsly
import torch
import typer
from data import WITH_TEST, convert, convert_all
from spacy.language import DEFAULT_CONFIG_PRETRAIN_PATH, Language
from spacy.tokens import DocBin
from spacy.util import load_config
from task import create_corpus, to_predict
from thinc.api import Config

from spacy_elmo.bilm.paths import find_files
from spacy_elmo.errors import WeightsError
from spacy_elmo.storage import hold, sha256
from spacy_elmo.weights import resolve

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import machine, machines, table  # noqa: E402

Run = Dict[str, Any]
Plan = Dict[str, Any]

# Keys of a run, which name files in WORK. spaCy has them in [initialize], too.
BEGINNINGS = ("vectors", "init_tok2vec")
NOT_RUN = "-"
COSTS = (
    "What it cost, beside other runs and not all on one machine: the times of two runs "
    "of one arm differ by a factor of up to 3, so that arms are not to be compared by "
    "them closely. Training is to a run's own end, and layers of sentences that an "
    "earlier run has read come from the disk."
)


def main(
    experiment: Path,
    data: Annotated[Path, typer.Option(help="Folder of the evaluation sets")],
    weights: str = "en_elmo_sm",
    work: Path = HERE / "work",
    only: Annotated[str, typer.Option(help="Runs: TASK/ARM/DOCS/SEED, with *")] = "*",
    fresh: Annotated[bool, typer.Option(help="As after a change of code")] = False,
    jobs: Annotated[int, typer.Option(help="Runs at a time, which share cores")] = 2,
    keep: Annotated[bool, typer.Option(help="Pipelines, in WORK/pipelines")] = False,
) -> None:
    """Run what has no result yet, and write the tables."""
    try:
        weights_file(weights)
    except WeightsError as e:
        raise SystemExit(str(e)) from None
    # Components that the configs name.
    import components  # noqa: F401

    plan = srsly.read_yaml(experiment)
    path = experiment.resolve().parent / "results.json"
    runs = runs_of(plan)
    # Its own last: of two results of a run, the last counts.
    known = sorted(path.parent.parent.glob("*/results.json"), key=path.__eq__)
    done = done_of(runs, known)
    asked = fnmatch.filter(runs, only)
    if not asked:
        print(f"No run is called {only}: the tables are written anew.", file=sys.stderr)
    again = fresh or keep
    wanted = {
        key: run
        for key, run in runs.items()
        if key in asked
        and (again or key not in done or is_stale(done[key], weights, work))
    }
    for key, run in wanted.items():
        bilm = [work / run["weights"]] if "weights" in run else []
        for file in [*files_of(run, work).values(), *bilm]:
            if not file.exists():
                raise SystemExit(f"{key} needs {file}: make it first (see README.md).")
    if fresh:
        shutil.rmtree(work / "cache", ignore_errors=True)  # layers of the other code
        for name in {run["data"] for run in wanted.values()}:
            convert_all(data, name, work / "corpus")
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {
            pool.submit(
                train_once, run, data, weights, work, jobs, key * keep, fresh
            ): key
            for key, run in wanted.items()
        }
        for future in as_completed(waiting):
            if future.exception():
                pool.shutdown(cancel_futures=True)
            result = {"run": runs[waiting[future]], **future.result()}
            # What another process has found since is kept.
            done = {**done, **done_of(runs, [path]), waiting[future]: result}
            write_runs(path, runs, done)
    # With what it shares with other experiments: the table's figures stand in one file.
    done = {**done, **done_of(runs, [path])}
    write_runs(path, runs, done)
    if old := [key for key in done if is_stale(done[key], weights, work)]:
        print(f"Of another config, biLM or vectors: {', '.join(old)}.", file=sys.stderr)
    text = render(plan, done)
    (experiment.parent / "results.md").write_text(text, encoding="utf8")
    if "plot" in plan:
        from plots import PLOTS

        PLOTS[plan["plot"]](plan, done, experiment.parent / "results.png")
    print(text)


def runs_of(plan: Plan) -> Dict[str, Run]:
    """A key and the settings for each run, seed after seed. What an arm has for one
    task (`arms: ARM: tasks: TASK: ...`) goes before what it has for all.
    """
    runs = {}
    for seed, task, arm in product(plan["seeds"], plan["tasks"], plan["arms"]):
        of_task, of_arm = plan["tasks"][task], dict(plan["arms"][arm])
        of_arm.update(of_arm.pop("tasks", {}).get(task, {}))
        settings = {**of_task.get("set", {}), **of_arm.pop("set", {})}
        what = {"cfg": of_task["cfg"], "data": of_task["data"], **of_arm}
        for limit in of_task.get("limits", [0]):
            key = f"{task}/{arm}/{limit or 'all'}/{seed}"
            runs[key] = {**what, "set": settings, "limit": limit, "seed": seed}
    return runs


def make_config(run: Run) -> Config:
    """The config of a run: the base, the task, and the encoder in its component."""
    config = Config().from_disk(HERE / "tasks" / "base.cfg", interpolate=False)
    task = Config().from_disk(HERE / "tasks" / f"{run['cfg']}.cfg", interpolate=False)
    config = config.merge(task)
    (component,) = config["components"]
    config["nlp"]["pipeline"] = [component]
    encoder = Config().from_disk(HERE / "encoders" / f"{run['encoder']}.cfg")
    # A task may have its own settings for what an encoder has.
    model = encoder.merge(config["components"][component]["model"])
    config["components"][component]["model"] = model
    if "spacy_elmo.ELMoListener.v1" in encoder.to_str():
        config["nlp"]["pipeline"].insert(0, "elmo")
        bilm = {
            "@architectures": "spacy_elmo.BiLM.v1",
            "weights": "${paths.elmo}",
            "sentence_cache_path": "${paths.cache}",
        }
        config["components"]["elmo"] = {"factory": "elmo", "model": bilm}
    config["corpora"]["train"]["limit"] = run["limit"]
    for key, value in run["set"].items():
        is_of_model = key.startswith("model.")
        set_path(model if is_of_model else config, key.removeprefix("model."), value)
    if "init_tok2vec" in run:
        share_tok2vec(config, component)
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
    config[last] = value


def train_once(
    run: Run,
    data: Path,
    weights: str,
    work: Path,
    jobs: int,
    keep_as: str = "",
    fresh: bool = False,
) -> Run:
    """Experiments share the runs that they have in common; other weights of the biLM
    leave those without it as they are. A run that another process has begun is waited
    for.

    keep_as (str): What the pipeline is called in WORK/pipelines, if it is kept.
    fresh (bool): Whether to run what has a result, which is of other code.
    """
    if "weights" in run:
        weights = str(work / run["weights"])
    made = {"made_of": made_of(run, weights, work)}
    key = digest({**run, **made})
    path = work / "results" / f"{key[:16]}.json"
    kept = work / "pipelines" / keep_as
    mark = kept / "result.txt"  # the digest of what it has
    folder = work / "runs" / key[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold(folder.with_suffix(".lock")):
        is_kept = path.is_file() and mark.is_file() and mark.read_text() == sha256(path)
        if fresh or not path.is_file() or (keep_as and not is_kept):
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
            result = train(run, data, weights, work, folder, jobs)
            write_json(path, {**result, **made})
            if keep_as:
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(kept, ignore_errors=True)
                (folder / "output" / "model-best").rename(kept)
                mark.write_text(sha256(path))
            shutil.rmtree(folder)
    return read_json(path)


def files_of(run: Run, work: Path) -> Dict[str, Path]:
    """What a run begins with, and other commands make."""
    return {key: work / run[key] for key in BEGINNINGS if key in run}


def made_of(run: Run, weights: str, work: Path) -> Dict[str, str]:
    """Digests of the config of a run and of the files that it begins with: their names
    stay when they are made anew. The code of its components is not among them.
    """
    config = make_config(run)
    found = {"config": digest(config)[:16]}
    paths = files_of(run, work)
    if "elmo" in config["nlp"]["pipeline"]:
        paths["biLM"] = weights_file(weights)
    for name, path in paths.items():
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        all_of_them = "".join(sha256(file) for file in files if not file.is_dir())
        found[name] = hashlib.sha256(all_of_them.encode()).hexdigest()[:16]
    return found


def weights_file(weights: str) -> Path:
    """The file with the weights of a biLM, or the archive that it is in."""
    path = resolve(weights)
    return path if path.is_file() else Path(find_files(path).weights_name)


def digest(settings: Any) -> str:
    text = srsly.json_dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_stale(result: Run, weights: str, work: Path) -> bool:
    """Whether a result is of another config or other files than are here now, as far as
    it says.
    """
    run = result["run"]
    if "weights" in run:
        weights = str(work / run["weights"])
    try:
        said, now = result.get("made_of", {}), made_of(run, weights, work)
        return any(now.get(key) != value for key, value in said.items())
    except (OSError, WeightsError):  # a file is not here
        return False


def train(
    run: Run, data: Path, weights: str, work: Path, folder: Path, jobs: int
) -> Run:
    """RETURNS (Dict): Scores of the best evaluation, what each had, and costs."""
    train, dev = (
        convert(data, run["data"], part, work / "corpus") for part in ("train", "dev")
    )
    folder.mkdir(parents=True)
    make_config(run).to_disk(folder / "config.cfg")
    command = [
        sys.executable, "-m", "spacy", "train", str(folder / "config.cfg"),
        "--code", str(HERE / "components.py"), "--output", str(folder / "output"),
        "--paths.train", str(train), "--paths.dev", str(dev),
        "--paths.elmo", weights, "--paths.cache", str(work / "cache"),
        "--system.seed", str(run["seed"]),
        "--training.logger.output_file", str(folder / "log.jsonl"),
    ]  # fmt: skip
    for key, path in files_of(run, work).items():
        command += [f"--initialize.{key}", str(path)]
    costs = run_process(command, folder / "printed.txt", jobs)
    records = list(srsly.read_jsonl(folder / "log.jsonl"))
    best = best_of(records)
    best_model = folder / "output" / "model-best"
    nlp = spacy.load(best_model)
    found: Run = {
        "machine": machine(),
        "score": best["score"],
        "scores": {key: round(x / 100, 5) for key, x in best["scores"].items()},
        "step": best["step"],
        "curve": [[r["step"], round(r["score"], 4)] for r in records],
        **costs,
        "words_per_second": round(words_per_second(nlp, dev)),
        "disk_mb": round(size_of(best_model) / 2**20, 1),
    }
    if run["data"] in WITH_TEST:
        test = convert(data, run["data"], "test", work / "corpus")
        scores = nlp.evaluate(list(create_corpus(test)(nlp)))
        for key in best["scores"]:
            if isinstance(scores.get(key), float):  # None where nothing is annotated
                found["scores"][f"test_{key}"] = round(scores[key], 5)
    if "elmo" in nlp.pipe_names:
        from spacy_elmo.pipeline.learned_weights import get_mixes

        found["mixes"] = get_mixes(nlp)
    print(f"{run}: {found}")
    return found


def best_of(records: List[Run]) -> Run:
    """The evaluation of model-best: of equal scores spaCy keeps the last."""
    return max(records, key=lambda record: (record["score"], record["step"]))


def run_process(command: List[str], printed: Path, jobs: int) -> Dict[str, Any]:
    """RETURNS (Dict): What it took, the evaluations with it."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    env = {"OMP_NUM_THREADS": str(threads), **os.environ}
    with printed.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=env)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}\n{printed.read_text()}")
    hours = (usage.ru_utime + usage.ru_stime) / 3600
    return {"cpu_hours": round(hours, 3)}


def words_per_second(nlp: Language, path: Path, n_words: int = 10_000) -> float:
    """Of prediction, on the first Docs of a file; the caches know none of them. By
    processor time on one thread, since other runs may go on beside it.
    """
    docs, n = [], 0
    for reference in DocBin().from_disk(path).get_docs(nlp.vocab):
        docs.append(to_predict(reference))
        n += len(reference)
        if n >= n_words:
            break
    torch.set_num_threads(1)
    start = time.thread_time()
    for _ in nlp.pipe(docs):
        pass
    return n / (time.thread_time() - start)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def render(plan: Plan, runs: Dict[str, Run]) -> str:
    """Means and deviations over the seeds: tasks by arms."""
    arms = list(plan["arms"])
    rows = [
        [f"{name}, {limit:,} Docs" if limit else name]
        + [
            cell(scores_of(plan, runs, task, arm, limit, score), len(plan["seeds"]))
            for arm in arms
        ]
        for task, settings in plan["tasks"].items()
        for limit in settings.get("limits", [0])
        for score, name in settings["scores"].items()
    ]
    rows = [row for row in rows if set(row[1:]) != {NOT_RUN}]
    seeds = (
        f"Dev scores, mean and deviation over {len(plan['seeds'])} seed(s) or as many "
        "as stand in brackets; one figure alone is of one seed. What was not run yet "
        "is left out."
    )
    scores = table(["task", *arms], rows)
    header = ["cost, medians", "training, CPU hours", "prediction, words/s",
              "on disk, MB"]  # fmt: skip
    found = costs(plan, runs)
    cost = [COSTS, table(header, found)] if found else []
    parts = [f"# {plan['title']}", plan["description"].strip(), seeds, scores,
             *cost, machines(runs)]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts) + "\n"


def costs(plan: Plan, runs: Dict[str, Run]) -> List[List[str]]:
    """What each arm costs: medians over the seeds, for each task."""
    keys = "cpu_hours", "words_per_second", "disk_mb"
    rows = []
    for task in plan["tasks"]:
        for arm in plan["arms"]:
            mine = [
                r for key, r in runs.items() if key.startswith(f"{task}/{arm}/all/")
            ]
            if mine:
                medians = [statistics.median(run[key] for run in mine) for key in keys]
                rows.append([f"{task}, {arm}", f"{medians[0]:.2f}",
                             *(f"{m:,.0f}" for m in medians[1:])])  # fmt: skip
    return rows


def scores_of(
    plan: Plan,
    runs: Dict[str, Run],
    task: str,
    arm: str,
    limit: int = 0,
    score: str = "",
) -> List[float]:
    keys = [f"{task}/{arm}/{limit or 'all'}/{seed}" for seed in plan["seeds"]]
    found = [runs[key] for key in keys if key in runs]
    return [run["scores"][score] if score else run["score"] for run in found]


def cell(scores: List[float], n_seeds: int) -> str:
    if not scores:
        return NOT_RUN
    mean = f"{100 * statistics.mean(scores):.1f}"
    if len(scores) < 2:
        return mean
    of = "" if len(scores) == n_seeds else f" ({len(scores)})"
    return f"{mean} ± {100 * statistics.stdev(scores):.1f}{of}"


def done_of(runs: Dict[str, Run], paths: List[Path]) -> Dict[str, Run]:
    """Results of the runs as they are planned now, from files of results: experiments
    have arms in common.
    """
    files = [read_json(path) for path in paths if path.is_file()]
    found = [result for file in files for result in file.get("runs", {}).values()]
    return {k: r for k, run in runs.items() for r in found if r.get("run") == run}


def write_runs(path: Path, planned: Dict[str, Run], done: Dict[str, Run]) -> None:
    write_json(path, {"runs": {key: done[key] for key in planned if key in done}})


def read_json(path: Path) -> Dict[str, Any]:
    """Not by srsly, whose parser changes the last digits of some numbers."""
    return dict(json.loads(path.read_text(encoding="utf8")))


def write_json(path: Path, results: Dict[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(results, indent=1) + "\n", encoding="utf8")
    unfinished.replace(path)


if __name__ == "__main__":
    typer.run(main)
