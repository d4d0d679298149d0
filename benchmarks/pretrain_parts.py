"""Where a step of pretraining goes: its parts by name, and how near the matrix products
come to the machine's peak.

    python benchmarks/pretrain_parts.py --text heldout.txt --output benchmarks
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict

import torch
from harness import PRODUCTS, ROOT, machine, make_parser, peak_products, save, table
from pretrain import WARM_UP, compile_all, our_step, products
from torch.profiler import ProfilerActivity, profile

from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.corpus import load_corpora
from spacy_elmo.pretraining.machine import keep_freed_memory

STEPS = 4
# Parts of a step, and what the profiler calls them.
PARTS = {
    "LSTMs, forward": ("TrainedLSTM",),
    "LSTMs, backward": ("TrainedLSTMBackward",),
    "softmax, both ways": ("_SoftmaxLoss", "_SoftmaxLossBackward"),
    "convolutions, both ways": ("_ConvolveAndPool", "_ConvolveAndPoolBackward"),
    "optimizer": ("Optimizer.step#AdamW.step",),
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", required=True, help="Text of some 10,000 tokens")
    parser.add_argument("--config", default=str(ROOT / "configs/pretrain_small.cfg"))
    parser.add_argument("--dim", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    if not args.no_compile:
        compile_all()
    results = {
        "machine": machine(args.threads),
        "steps": [
            measure(dim, precision, args)
            for dim in args.dim
            for precision in args.precisions
        ],
    }
    save("pretrain_parts", results, render(results), args.output)


def measure(dim: int, precision: str, args: argparse.Namespace) -> Dict[str, Any]:
    settings = read_settings(
        args.config,
        {
            "paths.train": args.text, "training.rows": args.rows,
            "training.precision": precision, "model.lstm.dim": dim,
        },
    )  # fmt: skip
    with TemporaryDirectory() as cache:
        corpus, _ = load_corpora(settings, Path(cache))
        step = our_step(settings, corpus)
        for _ in range(WARM_UP):
            step()
        start = time.perf_counter()
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            for _ in range(STEPS):
                step()
        seconds = (time.perf_counter() - start) / STEPS
        operations = products(settings, corpus) * settings.training.tokens_per_step
    events = {event.key: event for event in profiled.key_averages()}
    times = {
        name: event.self_cpu_time_total / 1e6 / STEPS for name, event in events.items()
    }
    parts = {
        part: sum(events[n].cpu_time_total for n in names if n in events) / 1e6 / STEPS
        for part, names in PARTS.items()
    }
    parts["the rest"] = seconds - sum(parts.values())
    in_products = sum(times.get(name, 0.0) for name in PRODUCTS)
    compiled = sum(t for name, t in times.items() if "CompiledFxGraph" in name)
    peak = peak_products(getattr(torch, precision))
    return {
        "geometry": f"2x{dim}/128",
        "precision": precision,
        "seconds": seconds,
        "parts": {part: spent / seconds for part, spent in parts.items()},
        "products": in_products / seconds,
        "compiled": compiled / seconds,
        "of_peak": operations / in_products / peak,
    }


def render(results: Dict[str, Any]) -> str:
    names = [*PARTS, "the rest"]
    header = ["geometry", "precision", *names, "products, of all", "of the peak"]
    rows = []
    for found in results["steps"]:
        shares = [*found["parts"].values(), found["products"]]
        cells = [found["geometry"], found["precision"], *(f"{x:.0%}" for x in shares)]
        rows.append([*cells, f"{found['of_peak']:.2f}"])
    about = f"A step of pretraining, {results['machine']}.\n"
    note = (
        "Products: all matrix products, in whatever part. The last column is what the "
        "step would reach of the bound if it were nothing but its products. The "
        "profiler itself takes some hundredths, most of them in the LSTMs.\n"
    )
    return "\n".join([about, table(header, rows), note])


if __name__ == "__main__":
    main()
