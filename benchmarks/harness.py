"""What all benchmarks share: the machine, repeated timing, tables, files and plots.

A new benchmark measures its arms in turn and renders what it found:

    args = make_parser(__doc__).parse_args()  # has --output and --threads
    torch.set_num_threads(args.threads)
    seconds = take_turns({"ours": timed(ours), "theirs": timed(theirs)}, turns=5)
    speedup = ratio(seconds["theirs"], seconds["ours"])
    results = {"machine": machine(args.threads), "speedup": speedup}
    save("name", results, table(["", "s"], medians(seconds).items()), args.output)
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import torch

from spacy_elmo.bilm.kernels import matmul

ROOT = Path(__file__).resolve().parent.parent
FEATURES = {
    "avx2": "AVX2", "avx512f": "AVX-512", "avx512_vnni": "VNNI",
    "avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX BF16", "amx_int8": "AMX INT8",
}  # fmt: skip

# The operations of torch that are matrix products, as its profiler calls them.
PRODUCTS = {"aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_", "aten::baddbmm",
            "aten::baddbmm_", "mkldnn::_linear_pointwise",
            "quantized::linear_with_input_q_dq_qweight_dq_output_fp32"}  # fmt: skip

Arms = Dict[str, Callable[[], float]]
Seconds = Dict[str, List[float]]


def make_parser(doc: str, threads: bool = True) -> argparse.ArgumentParser:
    """A parser of what every benchmark takes."""
    parser = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    if threads:
        parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="Folder of the results")
    return parser


def machine(threads: int = 0) -> str:
    """The processor with its cores, what it has for matrix products, and the version
    and threads of torch.
    """
    name, found = platform.processor() or platform.machine(), []
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [line.partition(":") for line in info.read_text().split("\n")]
        values = {key.strip(): value.strip() for key, _, value in lines}
        name = values.get("model name", name)
        flags = values.get("flags", "").split()
        found = [label for flag, label in FEATURES.items() if flag in flags]
    parts = [f"{name}, {os.cpu_count()} cores", *found, f"torch {torch.__version__}"]
    if threads:
        parts.append(f"{threads} thread{'s' * (threads > 1)}")
    return ", ".join(parts)


def machines(runs: Dict[str, Dict[str, Any]]) -> str:
    """Where the runs were made: costs of different machines do not compare."""
    named = Counter(run["machine"] for run in runs.values())
    if len(named) < 2:
        return f"Machine: {''.join(named)}."
    most, *others = [name for name, _ in named.most_common()]
    lines = [f"Machine: {most}, but for these:"]
    for name in others:
        keys = [key for key, run in runs.items() if run["machine"] == name]
        lines.append(f"{', '.join(keys)}: {name}.")
    return "\n".join(lines)


def peak_products(dtype: torch.dtype, size: int = 2048) -> float:
    """Operations per second of a large square matrix product, the best of several."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    product = timed(lambda: matmul(a, b))
    return 2 * size**3 / min(product() for _ in range(4))


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    """A function that runs and returns its seconds."""

    def timing() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timing


def take_turns(arms: Arms, turns: int, warm_up: int = 1) -> Seconds:
    """Seconds of each arm in each turn. The arms take turns because the speed of a
    machine changes from minute to minute; the first turns are not counted.
    """
    seconds: Seconds = {name: [] for name in arms}
    for turn in range(warm_up + turns):
        for name, run in arms.items():
            found = run()
            if turn >= warm_up:
                seconds[name].append(found)
    return seconds


def medians(seconds: Seconds) -> Dict[str, float]:
    return {name: statistics.median(times) for name, times in seconds.items()}


def ratio(slower: Sequence[float], faster: Sequence[float]) -> float:
    """How many times faster: the median over the turns."""
    return statistics.median(a / b for a, b in zip(slower, faster))


def run_python(*args: object) -> None:
    """Run `python ...` in a process of its own."""
    command = [sys.executable, *map(str, args)]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"{' '.join(command)} failed")


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], form: str = "") -> str:
    """A Markdown table. `form` is the format of floats, such as ",.0f"."""
    cells = [
        [f"{value:{form}}" if isinstance(value, float) else str(value) for value in row]
        for row in rows
    ]
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *cells)) + "\n"


def save(name: str, results: Any, text: str, output: Optional[Path]) -> None:
    """Print the text and, if there is a folder for it, write NAME.json and NAME.md."""
    print(text)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n")
        (output / f"{name}.md").write_text(text, encoding="utf8")


def plot(path: Path, panels: Dict[str, Dict[str, Any]], unit: str) -> None:
    """Draw a panel for each title: a bar for each arm that is one number, a line for
    each arm that is numbers by size.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (5.5 * len(panels), 4)
    fig, axes = plt.subplots(
        1, len(panels), figsize=size, layout="constrained", squeeze=False
    )
    for ax, (title, arms) in zip(axes[0], panels.items()):
        lines = {name: arm for name, arm in arms.items() if isinstance(arm, dict)}
        for name, arm in lines.items():
            ax.plot([float(x) for x in arm], list(arm.values()), "o-", label=name)
        if lines:
            ax.set(xlabel=title, ylabel=unit, yscale="log")
            ax.set_xscale("log", base=2)
            ax.grid(alpha=0.3)
            ax.legend()
        else:
            colors = ["C0" if arm.startswith("spacy_elmo") else "C7" for arm in arms]
            bars = ax.barh(list(arms), list(arms.values()), color=colors)
            ax.bar_label(bars, fmt="{:,.0f}", padding=3)
            ax.invert_yaxis()
            ax.margins(x=0.3)
            ax.set(title=title, xlabel=unit)
    fig.savefig(path, dpi=110)
    plt.close(fig)
