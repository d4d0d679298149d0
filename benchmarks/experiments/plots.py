"""Plots of the results."""

import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

Plan = Dict[str, Any]
Runs = Dict[str, Dict[str, Any]]


def bars(plan: Plan, runs: Runs, path: Path) -> None:
    """Tasks by arms, with the deviation over the seeds."""
    tasks, arms = list(plan["tasks"]), list(plan["arms"])
    fig, ax = plt.subplots(figsize=(2 + 0.9 * len(tasks), 4), layout="constrained")
    width = 0.8 / len(arms)
    for a, arm in enumerate(arms):
        found = [
            [run["score"] for key, run in runs.items() if key.startswith(f"{t}/{arm}/")]
            for t in tasks
        ]
        means = [100 * statistics.mean(x) if x else 0 for x in found]
        errors = [100 * statistics.stdev(x) if len(x) > 1 else 0 for x in found]
        places = [i + a * width for i in range(len(tasks))]
        ax.bar(places, means, width, yerr=errors, label=arm, capsize=2)
    ax.set_xticks([i + 0.4 - width / 2 for i in range(len(tasks))], tasks, rotation=30)
    ax.set(ylabel="dev score", title=plan["title"])
    ax.legend(ncols=2)
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
                keys = [f"{task}/{arm}/{limit or 'all'}/{s}" for s in plan["seeds"]]
                scores = [100 * runs[k]["score"] for k in keys if k in runs]
                means.append(statistics.mean(scores) if scores else float("nan"))
            row[0].plot([1, 3, 10, 30, 100][: len(limits)], means, "o-", label=arm)
            keys = [f"{task}/{arm}/all/{s}" for s in plan["seeds"]]
            curves = [runs[k]["curve"] for k in keys if k in runs]
            if curves:
                steps = [step for step, _ in curves[0]]
                scores = [statistics.mean(s for _, s in at) for at in zip(*curves)]
                row[1].plot(steps, [100 * s for s in scores], "o-", label=arm)
        row[0].set(xscale="log", xlabel="% of the training data",
                   ylabel=settings["name"])  # fmt: skip
        row[1].set(xlabel="updates")
        row[0].legend()
        for ax in row:
            ax.grid(alpha=0.3)
    fig.savefig(path, dpi=110)
    plt.close(fig)


PLOTS: Dict[str, Callable[[Plan, Runs, Path], None]] = {
    "bars": bars,
    "efficiency": efficiency,
}
