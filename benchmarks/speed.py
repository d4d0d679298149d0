"""Words a second of the biLM beside AllenNLP's and simple_elmo's, on the same
sentences and weights, and beside the machine's matrix products.

    python benchmarks/speed.py --text ewt/dev.tsv --peers FOLDER --output benchmarks

The peers live in environments of their own, which are made in FOLDER if they are not
there yet; without --peers the rest is measured.

Each arm runs the whole text in turn with the others; ratios are medians over the
turns, because the machine's speed changes from minute to minute. Weights are drawn at
random in the official geometries: speed does not depend on their values.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, List, Optional
from unittest.mock import patch

import numpy as np
import torch
from harness import machine, peak_products
from peers import PEERS, make_environment

from spacy_elmo.bilm import BiLM, LSTMOptions, Options, lstm_predict
from spacy_elmo.bilm.batches import make_batches
from spacy_elmo.bilm.lstm import LEAST_READINGS
from spacy_elmo.bilm.model import MAX_BATCH_TOKENS
from spacy_elmo.bilm.reading import Reading
from spacy_elmo.layers.word_cache import WordCache

ROOT = Path(__file__).resolve().parent.parent
FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
# dim, projection, highways; words of the text that a turn runs
GEOMETRIES = {"original": (4096, 512, 2, 10000), "small": (1024, 128, 1, 10000)}
BEST_BATCHES = (32, 64, 128)
TOLERANCE = 1e-5

Sentences = List[List[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, help="Lines of words, or a treebank's TSV")
    parser.add_argument("--peers", type=Path, help="Folder of their environments")
    parser.add_argument("--geometries", nargs="+", default=list(GEOMETRIES))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--words", type=int, help="Of the text; by default by geometry")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, help="For speed.json, .md and .png")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results: Dict[str, Any] = {
        "machine": machine(args.threads),
        "geometries": {},
    }
    for name in args.geometries:
        with TemporaryDirectory() as folder:
            results["geometries"][name] = measure(name, Path(folder), args)
    table = render(results)
    if args.output is not None:
        (args.output / "speed.json").write_text(json.dumps(results, indent=2) + "\n")
        (args.output / "speed.md").write_text(table)
        plot(results, args.output / "speed.png")
    print(table)


def measure(name: str, folder: Path, args: argparse.Namespace) -> Dict[str, Any]:
    """All arms for one geometry."""
    dim, projection, n_highway, n_words = GEOMETRIES[name]
    bilm = random_bilm(dim, projection, n_highway)
    bilm.save(folder)
    sentences = read_sentences(args.text, args.words or n_words)
    n_words = sum(map(len, sentences))
    ordered = sorted(sentences, key=len)
    low = BiLM.from_path(folder).use_bfloat16()
    exact = BiLM.from_path(folder)
    cold, warm = WordCache(0), WordCache(1 << 30)
    arms: Dict[str, Callable[[], float]] = {
        "spacy_elmo, float32, cold": timed(lambda: run(exact, cold, sentences)),
        "spacy_elmo, float32, warm": timed(lambda: run(exact, warm, sentences)),
        "spacy_elmo, bfloat16, cold": timed(lambda: run(low, cold, sentences)),
    }
    peers = start_peers(folder, args)
    for peer, process in peers.items():
        arms[f"{peer}, batches of 32"] = asked(process, batches(sentences, 32))
        for size in BEST_BATCHES:
            arms[f"{peer}, sorted, {size}"] = asked(process, batches(ordered, size))
    seconds = take_turns(arms, args.turns)
    outputs = compare(exact, low, peers, sentences)
    for process in peers.values():
        process.terminate()
    return {
        "geometry": f"{dim}/{projection}",
        "words": n_words,
        "words_per_second": {
            arm: n_words / statistics.median(t) for arm, t in seconds.items()
        },
        "ratios": ratios(seconds, list(peers)),
        "outputs": outputs,
        "bound": bound(exact, sentences),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def random_bilm(dim: int, projection: int, n_highway: int) -> BiLM:
    options = {
        "lstm": {"dim": dim, "projection_dim": projection, "n_layers": 2,
                 "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True},
        "char_cnn": {"activation": "relu", "filters": FILTERS, "n_highway": n_highway,
                     "embedding": {"dim": 16}, "n_characters": 262,
                     "max_characters_per_token": 50},
    }  # fmt: skip
    bilm = BiLM(Options.from_dict(options)).requires_grad_(False)
    torch.manual_seed(0)
    for param in bilm.parameters():
        fan_in = param.shape[0] if param.dim() == 2 else param[0].numel()
        torch.nn.init.normal_(param, 0.0, 1 / max(1, fan_in) ** 0.5)
        if param.dim() == 1:
            param.mul_(0.1)
    return bilm


def read_sentences(path: Optional[Path], n_words: int) -> Sentences:
    """Sentences of about n_words words, read again from the start if there are too
    few.
    """
    if path is not None and path.suffix == ".tsv":
        blocks = path.read_text(encoding="utf8").split("\n\n")
        rows = [[r for r in b.split("\n") if r and r[0] != "#"] for b in blocks]
        column = 1 if rows[0] and rows[0][0].split("\t")[0].isdigit() else 0
        found = [[r.split("\t")[column] for r in row] for row in rows if row]
    else:
        path = path or ROOT / "assets" / "sample_train.iob"
        lines = path.read_text(encoding="utf8").splitlines()
        found = [[w.split("|")[0] for w in line.split()] for line in lines if line]
    sentences: Sentences = []
    n = 0
    while n < n_words:
        for sentence in found:
            sentences.append(sentence)
            n += len(sentence)
            if n >= n_words:
                break
    return sentences


def batches(sentences: Sentences, size: int) -> List[Sentences]:
    return [sentences[i : i + size] for i in range(0, len(sentences), size)]


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    def timing() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timing


def run(bilm: BiLM, cache: WordCache, sentences: Sentences) -> Any:
    """As the `elmo` component runs: token vectors of known words are kept, as far as
    the cache has room.
    """
    index: Dict[str, int] = {}
    ids = [[index.setdefault(w, len(index) + 2) for w in s] for s in sentences]
    return bilm.encode_ids(cache.lookup(bilm, list(index)), ids)


def start_peers(folder: Path, args: argparse.Namespace) -> Dict[str, Any]:
    found = {}
    for name in PEERS if args.peers is not None else ():
        python = make_environment(name, args.peers)
        command = [python, str(ROOT / "benchmarks" / "peers.py"), name, str(folder)]
        process = subprocess.Popen(
            [*command, str(args.threads)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        if not process.stdout.readline():
            print(f"{name} does not run there: left out", file=sys.stderr)
            continue
        found[name] = process
    return found


def ask(process: Any, task: Dict[str, Any]) -> Dict[str, Any]:
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    return dict(json.loads(process.stdout.readline()))


def asked(process: Any, work: List[Sentences]) -> Callable[[], float]:
    return lambda: float(ask(process, {"batches": work})["seconds"])


def take_turns(
    arms: Dict[str, Callable[[], float]], turns: int
) -> Dict[str, List[float]]:
    seconds: Dict[str, List[float]] = {name: [] for name in arms}
    for turn in range(1 + turns):
        for name, run in arms.items():
            found = run()
            if turn:  # the first one warms up
                seconds[name].append(found)
    return seconds


def ratios(seconds: Dict[str, List[float]], peers: List[str]) -> Dict[str, float]:
    """How many times faster we are, as the median over the turns."""
    found = {}
    for peer in peers:
        used = f"{peer}, batches of 32"
        best = min(
            (arm for arm in seconds if arm.startswith(f"{peer}, ")),
            key=lambda arm: statistics.median(seconds[arm]),
        )
        for ours in (arm for arm in seconds if arm.startswith("spacy_elmo")):
            for what, arm in (("as used", used), (f"at its best ({best})", best)):
                pairs = zip(seconds[arm], seconds[ours])
                ratio = statistics.median(theirs / mine for theirs, mine in pairs)
                found[f"{ours} against {peer} {what}"] = ratio
    return found


def compare(
    exact: BiLM, low: BiLM, peers: Dict[str, Any], sentences: Sentences
) -> Dict[str, float]:
    """How far apart the outputs are: largest difference, and mean cosine."""
    some = sentences[:8]
    wanted = exact.encode(some)[0]
    found = {"bfloat16, mean cosine": mean_cosine(low.encode(some)[0], wanted)}
    for name, process in peers.items():
        theirs = ask(process, {"batches": [some], "show": True})["layers"]
        found[f"{name}, largest difference"] = max(
            float(np.abs(np.array(a) - b).max()) for a, b in zip(theirs, wanted)
        )
    return found


def mean_cosine(found: List[Any], wanted: List[Any]) -> float:
    a, b = (np.concatenate(arrays)[:, 1:] for arrays in (found, wanted))
    norms = np.linalg.norm(a, axis=2) * np.linalg.norm(b, axis=2)
    return float(((a * b).sum(2) / norms).mean())


def bound(bilm: BiLM, sentences: Sentences) -> Dict[str, float]:
    """The share of the matrix-product bound that the LSTMs reach on the text, in the
    batches of the component: operations of their products, at the peak of large
    square ones, over their time. And the same with the gates left out, which tells
    what the products of these shapes alone take. Only products that are made count:
    what is read once for several sentences counts once, and in float32 the input
    product of a word in the first layer once a batch where words recur.
    And the share it would take to be as fast with every product of every token, those
    of both boundaries too.
    """
    lstm = bilm.options.lstm
    index: Dict[str, int] = {}
    ids = [[index.setdefault(w, len(index) + 2) for w in s] for s in sentences]
    batches = list(make_batches(ids, MAX_BATCH_TOKENS))
    readings = [reading for batch in batches for reading in batch.readings]
    table = torch.randn(len(index) + 2, lstm.projection_dim)
    low = BiLM(bilm.options).requires_grad_(False)
    low.load_state_dict(bilm.state_dict())
    low.use_bfloat16()
    found = {}
    for name, model, dtype in (
        ("float32", bilm, torch.float32), ("bfloat16", low, torch.bfloat16)
    ):  # fmt: skip
        operations = sum(
            count_operations(lstm, reading, recurring=model is bilm)
            for reading in readings
        )
        shares: Dict[str, List[float]] = {name: [], f"{name}, products alone": []}
        for _ in range(5):
            peak = peak_products(dtype)
            for arm, cell in zip(shares, (lstm_predict._cell, without_gates)):
                with torch.no_grad(), patch.object(lstm_predict, "_cell", cell):
                    start = time.perf_counter()
                    for batch in batches:
                        model(table, batch)
                    seconds = time.perf_counter() - start
                shares[arm].append(operations / peak / seconds)
        found |= {arm: statistics.median(values[1:]) for arm, values in shares.items()}
        all_tokens = sum(map(len, sentences)) + 2 * len(sentences)
        every = 2 * count_products(lstm, all_tokens, lstm.n_layers * all_tokens)
        found[f"{name}, were every product made"] = found[name] * every / operations
        found[f"{name}, peak GFLOP/s"] = peak / 1e9
    return found


def count_operations(lstm: LSTMOptions, reading: Reading, recurring: bool) -> int:
    """Of the products of one direction's LSTMs."""
    n_tokens, n_words = len(reading.words), len(set(reading.words.tolist()))
    is_once = recurring and n_words * LEAST_READINGS <= n_tokens
    first = n_words if is_once else n_tokens
    return count_products(lstm, n_tokens, first + (lstm.n_layers - 1) * n_tokens)


def count_products(lstm: LSTMOptions, n_tokens: int, n_inputs: int) -> int:
    """Operations of one direction's products, those of the inputs of all layers being
    given.
    """
    a_gate = 2 * lstm.dim * lstm.projection_dim
    return a_gate * (4 * n_inputs + 5 * lstm.n_layers * n_tokens)


def without_gates(gates: torch.Tensor, c: torch.Tensor, clip: Any) -> torch.Tensor:
    return gates[0]


def render(results: Dict[str, Any]) -> str:
    lines = [f"Measured on {results['machine']}."]
    for name, found in results["geometries"].items():
        lines += [
            "", f"## {name} ({found['geometry']}), {found['words']:,} words", "",
            "| | words/s |", "|---|---|",
            *(f"| {k} | {v:,.0f} |" for k, v in found["words_per_second"].items()),
            "", "| ratio | |", "|---|---|",
            *(f"| {k} | {v:.2f}x |" for k, v in found["ratios"].items()),
            "", "| outputs | |", "|---|---|",
            *(f"| {k} | {v:.2g} |" if v < 0.5 else f"| {k} | {v:.6f} |"
              for k, v in found["outputs"].items()),
            "", "| the LSTMs' share of the matrix-product bound | |", "|---|---|",
            *(f"| {k} | {v:,.2f} |" for k, v in found["bound"].items()),
            "", f"Peak memory of the process: {found['peak_rss_mb']:,.0f} MB.",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def plot(results: Dict[str, Any], path: Path) -> None:
    """Words/s of every arm, a panel a geometry."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    geometries = results["geometries"]
    fig, axes = plt.subplots(
        1, len(geometries), figsize=(6 * len(geometries), 4), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for ax, (name, found) in zip(axes[0], geometries.items()):
        speeds = found["words_per_second"]
        colors = ["C0" if arm.startswith("spacy_elmo") else "C7" for arm in speeds]
        bars = ax.barh(list(speeds), list(speeds.values()), color=colors)
        ax.bar_label(bars, fmt="{:,.0f}", padding=3)
        ax.invert_yaxis()
        ax.margins(x=0.2)
        ax.set(title=f"{name} ({found['geometry']})", xlabel="words/s")
    fig.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
