"""Plots of the results."""

import math
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

Plan = Dict[str, Any]
Runs = Dict[str, Dict[str, Any]]


def bars(plan: Plan, runs: Runs, path: Path) -> None:
    """Tasks that were run by arms, with the deviation over the seeds."""
    run = {key.split("/")[0] for key in runs}
    tasks = [task for task in plan["tasks"] if task in run or not run]
    found = {
        arm: {
            task: mean_and_deviation(main_scores(plan, runs, task, arm))
            for task in tasks
        }
        for arm in plan["arms"]
    }
    grouped_bars(plan["title"], found, path)


def main_scores(
    plan: Plan, runs: Runs, task: str, arm: str, limit: int = 0
) -> List[float]:
    """By the seeds, the first score that the task's table has."""
    score = next(iter(plan["tasks"][task]["scores"]))
    keys = [f"{task}/{arm}/{limit or 'all'}/{seed}" for seed in plan["seeds"]]
    return [runs[key]["scores"][score] for key in keys if key in runs]


def mean_and_deviation(scores: List[float]) -> Tuple[float, float]:
    """NaN, which is not drawn, where there is none."""
    mean = statistics.mean(scores) if scores else math.nan
    return mean, statistics.stdev(scores) if len(scores) > 1 else math.nan


def grouped_bars(
    title: str, found: Dict[str, Dict[str, Tuple[float, float]]], path: Path
) -> None:
    """A bar for each found[arm][group], a mean and its deviation, in percent."""
    groups = list(next(iter(found.values())))
    n_bars = len(groups) * len(found)
    fig, ax = plt.subplots(figsize=(4.5 + 0.25 * n_bars, 4), layout="constrained")
    width = 0.8 / len(found)
    for a, (arm, scores) in enumerate(found.items()):
        means, errors = ([100 * x for x in part] for part in zip(*scores.values()))
        places = [i + a * width for i in range(len(groups))]
        ax.bar(places, means, width, yerr=errors, label=arm, capsize=2)
    ax.set_xticks([i + 0.4 - width / 2 for i in range(len(groups))], groups,
                  rotation=30)  # fmt: skip
    ax.set(ylabel="dev score, %", title=title)
    if len(found) > 1:
        fig.legend(loc="outside right upper")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def efficiency(plan: Plan, runs: Runs, path: Path) -> None:
    """Scores by Docs to train on, and by updates."""
    tasks = plan["tasks"]
    fig, axes = plt.subplots(len(tasks), 2, figsize=(10, 3.6 * len(tasks)),
                             layout="constrained", squeeze=False)  # fmt: skip
    for row, (task, settings) in zip(axes, tasks.items()):
        limits: List[int] = settings["limits"]
        for arm in plan["arms"]:
            means = []
            for limit in limits:
                scores = main_scores(plan, runs, task, arm, limit)
                means.append(100 * statistics.mean(scores or [float("nan")]))
            row[0].plot([1, 3, 10, 30, 100][: len(limits)], means, "o-", label=arm)
            keys = [f"{task}/{arm}/all/{s}" for s in plan["seeds"]]
            curves = [runs[k]["curve"] for k in keys if k in runs]
            if curves:
                # As far as all seeds have trained
                steps = [step for step, _ in min(curves, key=len)]
                scores = [statistics.mean(s for _, s in at) for at in zip(*curves)]
                row[1].plot(steps, [100 * s for s in scores], "o-", label=arm)
        row[0].set(xscale="log", xlabel="% of the training data",
                   ylabel=next(iter(settings["scores"].values())))  # fmt: skip
        row[1].set(xlabel="updates")
        row[0].legend()
        for ax in row:
            ax.grid(alpha=0.3)
    fig.savefig(path, dpi=110)
    plt.close(fig)


def minutes(plan: Plan, runs: Runs, path: Path) -> None:
    """Scores by the minutes of the arms "NAME, MINUTES"; one line per language."""
    arms = {a: float(a.split(", ")[1]) for a in plan["arms"] if a.startswith("ELMo, ")}
    kinds = list(dict.fromkeys(task.rpartition("_")[0] for task in plan["tasks"]))
    fig, axes = plt.subplots(1, len(kinds), figsize=(4.5 * len(kinds), 4),
                             layout="constrained", squeeze=False)  # fmt: skip
    for ax, kind in zip(axes[0], kinds):
        for i, task in enumerate(t for t in plan["tasks"] if t.startswith(f"{kind}_")):
            points = {"spaCy": 1.0, **arms}
            found = {
                x: 100 * statistics.mean(scores)
                for arm, x in points.items()
                if (scores := main_scores(plan, runs, task, arm))
            }  # fmt: skip
            label = task.rpartition("_")[2]
            ax.plot(list(found), list(found.values()), "o-", color=f"C{i}", label=label)
        ax.set(xscale="log", xlabel="minutes of pretraining (1: none)", title=kind,
               ylabel="dev score, %")  # fmt: skip
        ax.legend()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def tradeoff(plan: Plan, runs: Runs, path: Path) -> None:
    """Scores by the words per second in prediction, a panel for each task."""
    tasks = plan["tasks"]
    fig, axes = plt.subplots(1, len(tasks), figsize=(4.2 * len(tasks), 4),
                             layout="constrained", squeeze=False)  # fmt: skip
    for ax, (task, settings) in zip(axes[0], tasks.items()):
        score, name = next(iter(settings["scores"].items()))
        for arm in plan["arms"]:
            of_arm = [r for k, r in runs.items() if k.startswith(f"{task}/{arm}/all/")]
            if of_arm:
                scores = [100 * r["scores"][score] for r in of_arm]
                mean, error = mean_and_deviation(scores)
                speed = statistics.median(r["words_per_second"] for r in of_arm)
                ax.errorbar(speed, mean, error, fmt="o", capsize=2, label=arm)
        ax.set(xlabel="words/s, one core", ylabel="dev score, %", title=name)
        ax.set_xlim(left=0)
        ax.locator_params(axis="x", nbins=5)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.grid(alpha=0.3)
    fig.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center",
               ncols=len(plan["arms"]))  # fmt: skip
    fig.savefig(path, dpi=110)
    plt.close(fig)


PLOTS: Dict[str, Callable[[Plan, Runs, Path], None]] = {
    "bars": bars,
    "efficiency": efficiency,
    "minutes": minutes,
    "tradeoff": tradeoff,
}
