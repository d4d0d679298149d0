"""s and gamma of every task that has been run, as tables and a heat map (Figure 2)."""

import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, List

import srsly

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from harness import save, table  # noqa: E402

# Where ELMo is, in the order in which a model's layers are found: breadth first
PLACES = ("output", "input")
RESULTS = HERE.parent / "downstream" / "results.json"


def main() -> None:
    means = means_of(srsly.read_json(RESULTS)["runs"])
    n_layers = len(next(iter(means.values()))) - 1
    header = ["", *(f"s_{j}" for j in range(n_layers)), "gamma"]
    rows = [[name, *row] for name, row in means.items()]
    about = """# Learned weights of the layers (Figure 2)

Means over the seeds; layer 0 is the token layer. Input: of [x; ELMo] before the model,
unless it says output: of [h; ELMo] after its encoder.

"""
    results = {k: {"s": row[:-1], "gamma": row[-1]} for k, row in means.items()}
    save("results", results, about + table(header, rows, ".2f"), HERE)
    plot(means, HERE / "results.png")


def means_of(runs: Dict[str, Any]) -> Dict[str, List[float]]:
    """s_0 ... s_L and gamma of each task and place, means over the seeds."""
    found: Dict[str, List[Any]] = defaultdict(list)
    for key, run in runs.items():
        task = key.split("/")[0]
        mixes = run.get("mixes", [])
        for place, mix in zip(PLACES, mixes):
            name = f"{task}, {place}" if len(mixes) > 1 else task
            found[name].append([*mix["s"], mix["gamma"]])
    return {k: [statistics.mean(x) for x in zip(*rows)] for k, rows in found.items()}


def plot(mixes: Dict[str, List[float]], path: Path) -> None:
    """A row a mix: s, and gamma on a scale of its own."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = list(mixes.values())
    n_layers = len(rows[0]) - 1
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(5.2, 0.8 + 0.28 * len(rows)), width_ratios=(n_layers, 1),
        layout="constrained",
    )  # fmt: skip
    names = [f"$s_{j}$" for j in range(n_layers)]
    heat(left, [row[:-1] for row in rows], names, "viridis", 0.0)
    left.set_yticks(range(len(rows)), list(mixes))
    heat(right, [row[-1:] for row in rows], [r"$\gamma$"], "cividis", 1.0)
    right.set_yticks([])
    fig.savefig(path, dpi=110)


def heat(
    ax: Any, grid: List[List[float]], names: List[str], colors: str, least: float
) -> None:
    largest = max(max(row) for row in grid)
    ax.imshow(grid, cmap=colors, vmin=least, vmax=largest, aspect="auto")
    ax.set_xticks(range(len(names)), names)
    for i, row in enumerate(grid):
        for j, x in enumerate(row):
            is_bright = x - least > 0.7 * (largest - least)
            color = "black" if is_bright else "white"
            ax.text(j, i, f"{x:.2f}", ha="center", va="center", color=color)


if __name__ == "__main__":
    main()
