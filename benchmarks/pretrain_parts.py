"""Where a step of pretraining goes: its matrix products beside everything else, and
how near the products come to the machine's peak.

    python benchmarks/pretrain_parts.py --text heldout.txt --output benchmarks
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict

import torch
from harness import machine, peak_products
from pretrain import ROOT, WARM_UP, compile_all, our_step, products
from torch.profiler import ProfilerActivity, profile

from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.corpus import load_corpora

STEPS = 4
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::addbmm", "aten::baddbmm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="Text of some 10,000 tokens")
    parser.add_argument("--output", type=Path, help="For pretrain_parts.json and .md")
    parser.add_argument("--config", default=str(ROOT / "configs/pretrain_small.cfg"))
    parser.add_argument("--dim", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    compile_all()
    results = {
        "machine": machine(args.threads),
        "steps": [
            measure(dim, precision, args)
            for dim in args.dim
            for precision in ("float32", "bfloat16")
        ],
    }
    table = render(results)
    if args.output is not None:
        path = args.output / "pretrain_parts.json"
        path.write_text(json.dumps(results, indent=2) + "\n")
        path.with_suffix(".md").write_text(table)
    print(table)


def measure(dim: int, precision: str, args: argparse.Namespace) -> Dict[str, Any]:
    settings = read_settings(
        args.config,
        {
            "paths.train": args.text, "training.rows": args.rows,
            "training.precision": precision, "model.lstm.dim": dim,
        },
    )  # fmt: skip
    with TemporaryDirectory() as cache:
        corpus, _ = load_corpora(settings, Path(cache), silent=True)
        step = our_step(settings, corpus)
        for _ in range(WARM_UP):
            step()
        start = time.perf_counter()
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            for _ in range(STEPS):
                step()
        seconds = (time.perf_counter() - start) / STEPS
        operations = products(settings, corpus) * settings.training.tokens_per_step
    times = {
        event.key: event.self_cpu_time_total / 1e6 / STEPS
        for event in profiled.key_averages()
    }
    in_products = sum(times.get(name, 0.0) for name in PRODUCTS)
    compiled = sum(t for name, t in times.items() if "CompiledFxGraph" in name)
    peak = peak_products(getattr(torch, precision))
    return {
        "geometry": f"2x{dim}/128",
        "precision": precision,
        "seconds": seconds,
        "products": in_products / seconds,
        "compiled": compiled / seconds,
        "of_peak": operations / in_products / peak,
    }


def render(results: Dict[str, Any]) -> str:
    lines = [
        f"A step of pretraining, {results['machine']}.", "",
        "| geometry | precision | time in products | in compiled functions (cells, "
        "filters, softmax) | the products' share of the peak |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for found in results["steps"]:
        lines.append(
            f"| {found['geometry']} | {found['precision']} "
            f"| {found['products']:.0%} | {found['compiled']:.0%} "
            f"| {found['of_peak']:.2f} |"
        )
    lines += [
        "",
        "The last column is what the step would reach of the bound if it were nothing "
        "but its products.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
