"""s and gamma of every task that has been run, as tables and a heat map (Figure 2)."""

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, List

import srsly

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "downstream" / "results.json"


def main() -> None:
    runs: Dict[str, Any] = srsly.read_json(RESULTS)["runs"]
    found: Dict[str, List[Any]] = defaultdict(list)
    for key, run in runs.items():
        task, arm, _, _ = key.split("/")
        for mix in run.get("mixes", []):
            found[f"{task}, {arm}"].append([*mix["s"], mix["gamma"]])
    means = {k: [statistics.mean(x) for x in zip(*rows)] for k, rows in found.items()}
    n_layers = len(next(iter(means.values()))) - 1
    lines = [
        "# Learned weights of the layers (Figure 2)", "",
        "Means over the seeds; layer 0 is the token layer.", "",
        f"| | {' | '.join(f's_{j}' for j in range(n_layers))} | gamma |",
        "|---" * (n_layers + 2) + "|",
        *(
            f"| {name} | {' | '.join(f'{x:.2f}' for x in row)} |"
            for name, row in means.items()
        ),
        "",
    ]  # fmt: skip
    (HERE / "results.md").write_text("\n".join(lines), encoding="utf8")
    srsly.write_json(
        HERE / "results.json",
        {name: {"s": row[:-1], "gamma": row[-1]} for name, row in means.items()},
    )
    plot({name: row[:-1] for name, row in means.items()}, HERE / "results.png")
    print("\n".join(lines))


def plot(weights: Dict[str, List[float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, ax = plt.subplots(figsize=(4.5, 0.8 + 0.28 * len(weights)),
                           layout="constrained")  # fmt: skip
    image = ax.imshow(list(weights.values()), cmap="viridis", vmin=0, aspect="auto")
    ax.set_yticks(range(len(weights)), list(weights))
    n = len(next(iter(weights.values())))
    ax.set_xticks(range(n), [f"$s_{j}$" for j in range(n)])
    for i, row in enumerate(weights.values()):
        for j, s in enumerate(row):
            ax.text(j, i, f"{s:.2f}", ha="center", va="center", color="white")
    fig.colorbar(image)
    fig.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
