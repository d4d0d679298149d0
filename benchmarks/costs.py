"""What a user pays in seconds: words/s as sentences, batches and threads grow; one
sentence alone; loading and saving; epochs of training with and without ELMo.

    python benchmarks/costs.py --text ewt/dev.tsv --output benchmarks

Weights are drawn at random in the official geometries, as in speed.py.
"""

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import spacy
import torch
from accuracy import sentences as treebank
from harness import machine
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from speed import GEOMETRIES, random_bilm, read_sentences, timed

from spacy_elmo.bilm import BiLM

ROOT = Path(__file__).resolve().parent.parent
TURNS = 5
N_STEPS = 11  # of one sentence of ten words, with a boundary
GROWTH_WORDS = {"original": 2000, "small": 10000}
EPOCH_WORDS = {"original": 4000, "small": 12000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, required=True, help="A treebank's TSV")
    parser.add_argument("--geometries", nargs="+", default=list(GEOMETRIES))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, help="For costs.json, .md and .png")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results: Dict[str, Any] = {"machine": machine(args.threads), "geometries": {}}
    for name in args.geometries:
        with TemporaryDirectory() as folder:
            results["geometries"][name] = measure(name, Path(folder), args)
    table = render(results)
    if args.output is not None:
        (args.output / "costs.json").write_text(json.dumps(results, indent=2) + "\n")
        (args.output / "costs.md").write_text(table)
        plot(results, args.output / "costs.png")
    print(table)


def measure(name: str, folder: Path, args: argparse.Namespace) -> Dict[str, Any]:
    dim, projection, n_highway, _ = GEOMETRIES[name]
    random_bilm(dim, projection, n_highway).save(folder)
    bilm = BiLM.from_path(folder)
    return {
        "growth": growth(bilm, args.text, GROWTH_WORDS[name], args.threads),
        "memory": memory_layouts(bilm),
        "latency": latency(folder, bilm),
        "disk": load_and_save(folder),
        "epochs": epochs(folder, args.text, EPOCH_WORDS[name]),
    }


def growth(
    bilm: BiLM, text: Path, n_words: int, threads: int
) -> Dict[str, Dict[str, float]]:
    """Words/s by words of text, by tokens of a batch and by threads."""
    sizes = [n_words // 8, n_words // 4, n_words // 2, n_words, 2 * n_words]
    batches = [128, 512, 1024, 2048, 4096, 8192]
    by_threads = {}
    for n in range(1, threads + 1):
        torch.set_num_threads(n)
        by_threads[str(n)] = words_per_second(bilm, text, n_words)
    torch.set_num_threads(threads)
    return {
        "words of text": {str(n): words_per_second(bilm, text, n) for n in sizes},
        "tokens a batch": {
            str(n): words_per_second(bilm, text, n_words, max_batch_tokens=n)
            for n in batches
        },
        "threads": by_threads,
    }


def words_per_second(bilm: BiLM, text: Path, n: int, **arguments: int) -> float:
    sentences = read_sentences(text, n)
    run = timed(lambda: bilm.encode(sentences, **arguments))
    return sum(map(len, sentences)) / statistics.median(run() for _ in range(3))


def memory_layouts(bilm: BiLM) -> Dict[str, Dict[str, float]]:
    """Milliseconds of the recurrent product on one thread, by where and how its weights
    lie: rows of a power of two, rows padded (as we load them), and rows of the mapped
    file. (With more threads it is all the same.)
    """
    torch.get_num_threads()
    torch.set_num_threads(1)
    lstm = bilm.options.lstm
    weight = bilm.layers_of(0)[0].weight
    plain = weight.clone(memory_format=torch.contiguous_format)
    huge = _huge_pages(plain)
    found = {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weight"
        plain.numpy().tofile(path)
        mapped = np.memmap(path, np.float32, "c", shape=tuple(plain.shape))
        arms = {
            "padded": weight, "plain": plain, "plain, huge pages": huge,
            "mapped file": torch.from_numpy(mapped),
        }  # fmt: skip
        for n_rows in (1, 32, 128):
            h = torch.randn(n_rows, lstm.projection_dim)
            out = torch.empty(n_rows, 4 * lstm.dim)
            runs = {
                name: timed(partial(torch.mm, h, w[lstm.projection_dim :], out=out))
                for name, w in arms.items()
            }
            seconds = take_turns(runs, 40)
            found[f"{n_rows} rows"] = {
                name: statistics.median(times) * 1e3 for name, times in seconds.items()
            }
    return found


def _huge_pages(array: torch.Tensor) -> torch.Tensor:
    """A copy on huge pages, where the system has them."""
    page = 1 << 21
    block = mmap.mmap(-1, array.nbytes + page)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(block, dtype=torch.float32)
    start = -memory.data_ptr() % page // 4
    return memory[start : start + array.numel()].view(array.shape).copy_(array)


def take_turns(
    runs: Dict[str, Callable[[], float]], turns: int
) -> Dict[str, List[float]]:
    seconds: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            seconds[name].append(run())
    return seconds


def latency(folder: Path, bilm: BiLM) -> Dict[str, float]:
    """One sentence of ten words through nlp(...), beside the time that it takes to
    read the recurrent weights from memory at each step.
    """
    nlp = make_pipeline(folder)
    text = "The play that she wrote opens in the spring ."
    for _ in range(5):
        nlp(text)
    found = statistics.median(timed(lambda: nlp(text))() for _ in range(40))
    lstm = bilm.options.lstm
    projection = lstm.dim * lstm.projection_dim
    weights = 2 * lstm.n_layers * (4 * projection + projection)
    block = torch.zeros(1 << 26)
    bandwidth = block.nbytes / min(timed(block.sum)() for _ in range(10))
    floor = N_STEPS * weights * 4 / bandwidth
    return {"milliseconds": found * 1e3, "bound_milliseconds": floor * 1e3}


def load_and_save(folder: Path) -> Dict[str, float]:
    """Seconds to save and to load a pipeline, and memory of a process that loads."""
    nlp = make_pipeline(folder)
    nlp(Doc(nlp.vocab, words=["play"]))
    first, second = folder / "first", folder / "second"
    return {
        "save, s": timed(lambda: nlp.to_disk(first))(),
        "save unchanged, s": timed(lambda: nlp.to_disk(second))(),
        "load, s": statistics.median(
            timed(lambda: spacy.load(first))() for _ in range(3)
        ),
        "weights, MB": (first / "elmo" / "weights.hdf5").stat().st_size / 2**20,
        "peak memory of loading, MB": loading_memory(first) - loading_memory(None),
    }  # fmt: skip


def loading_memory(path: Any) -> float:
    """Peak memory of a process that imports everything and loads a pipeline (Linux)."""
    # Not ru_maxrss: a process inherits that of its parent.
    script = (
        "import re, spacy, spacy_elmo.bilm\n"
        + (f"spacy.load({str(path)!r})\n" if path else "")
        + "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return int(done.stdout) / 1024


def make_pipeline(folder: Path, **arguments: Any) -> Language:
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy_elmo.BiLM.v1", "weights": str(folder)}
    nlp.add_pipe("elmo", config={"model": {**model, **arguments}})
    return nlp


def epochs(folder: Path, text: Path, n_words: int) -> Dict[str, Any]:
    """Seconds of the first and the second epoch of a tagger, as `spacy train` updates:
    with ELMo; without the cache over sentences; with the same listener on ready-made
    vectors; without ELMo.
    """
    rows = []
    for sentence in treebank(text):
        rows.append(sentence)
        if sum(map(len, rows)) >= n_words:
            break
    arms = {
        "ELMo": partial(tagger, folder, rows),
        "ELMo, no cache": partial(tagger, folder, rows, sentence_cache_mb=0),
        "ready-made vectors": partial(ready_made, folder, rows),
        "no ELMo": partial(tagger, None, rows),
    }
    first: Dict[str, List[float]] = {name: [] for name in arms}
    later: Dict[str, List[float]] = {name: [] for name in arms}
    running = {name: make() for name, make in arms.items()}
    for turn in range(1 + TURNS):
        for name, epoch in running.items():
            (later if turn else first)[name].append(timed(epoch)())
    ratios = [a / b for a, b in zip(later["ELMo"], later["ready-made vectors"])]
    return {
        "words": sum(map(len, rows)),
        "epoch 1, s": {name: times[0] for name, times in first.items()},
        "epoch 2, s": {name: statistics.median(t) for name, t in later.items()},
        "epoch 2 against ready-made vectors": statistics.median(ratios),
    }


def tagger(folder: Any, rows: Any, **arguments: Any) -> Callable[[], None]:
    """A function that trains a tagger for an epoch."""
    nlp, examples = make_tagger(folder, rows, **arguments)
    return partial(train_epoch, nlp, examples)


def ready_made(folder: Path, rows: Any) -> Callable[[], None]:
    """As `tagger`, with an `elmo` that finds the arrays of each Doc at hand."""
    nlp, examples = make_tagger(folder, rows)
    elmo: Any = nlp.get_pipe("elmo")
    docs = [eg.predicted for eg in examples]
    arrays = {doc.text: array for doc, array in zip(docs, elmo.predict(docs))}
    elmo.predict = lambda docs: [arrays[doc.text] for doc in docs]
    return partial(train_epoch, nlp, examples)


def make_tagger(
    folder: Any, rows: Any, **arguments: Any
) -> Tuple[Language, List[Example]]:
    config = spacy.util.load_config(ROOT / "configs" / "tagger.cfg")
    tok2vec = config["components"]["tagger"]["model"]["tok2vec"]
    nlp = make_pipeline(folder, **arguments) if folder else spacy.blank("en")
    if not folder:
        tok2vec["embed"] = tok2vec["embed"]["embed"]
    nlp.add_pipe("tagger", config={"model": config["components"]["tagger"]["model"]})
    references = [
        Doc(nlp.vocab, words=[r[1] for r in s], tags=[r[4] for r in s]) for s in rows
    ]
    make = partial(Doc, nlp.vocab)
    examples = [Example(make(words=[t.text for t in x]), x) for x in references]
    nlp.initialize(lambda: examples)
    return nlp, examples


def train_epoch(nlp: Language, examples: List[Example]) -> None:
    optimizer = nlp._optimizer
    for batch in minibatch(examples, 64):
        # A new Doc each time, as spaCy's corpus reader makes them.
        fresh = [Example(eg.predicted.copy(), eg.reference) for eg in batch]
        nlp.update(fresh, sgd=optimizer, drop=0.1, losses={})


def render(results: Dict[str, Any]) -> str:
    lines = [f"Measured on {results['machine']}."]
    for name, found in results["geometries"].items():
        dim, projection, _, _ = GEOMETRIES[name]
        lines += ["", f"## {name} ({dim}/{projection})"]
        for what, speeds in found["growth"].items():
            rows = [f"| {n} | {speed:,.0f} |" for n, speed in speeds.items()]
            lines += ["", f"| {what} | words/s, float32 |", "|---|---|", *rows]
        lines += [
            "", "| one sentence of ten words | ms |", "|---|---|",
            f"| nlp(...) | {found['latency']['milliseconds']:.1f} |",
            "| reading the recurrent weights at each step | "
            f"{found['latency']['bound_milliseconds']:.1f} |",
            "", "| a pipeline | |", "|---|---|",
            *(f"| {k} | {v:.2f} |" for k, v in found["disk"].items()),
            "", f"A tagger's epochs of {found['epochs']['words']:,} words, seconds:",
            "", "| | epoch 1 | epoch 2 |", "|---|---|---|",
            *(
                f"| {arm} | {found['epochs']['epoch 1, s'][arm]:.2f} | {second:.2f} |"
                for arm, second in found["epochs"]["epoch 2, s"].items()
            ),
            "", "Epoch 2 against the same listener on ready-made vectors: "
            f"{found['epochs']['epoch 2 against ready-made vectors']:.2f}x.",
            "", "The recurrent product of a step on one thread, ms, by its memory:",
            "",
        ]  # fmt: skip
        memory = found["memory"]
        arms = list(next(iter(memory.values())))
        lines += [
            f"| | {' | '.join(arms)} |",
            "|---" * (1 + len(arms)) + "|",
            *(
                f"| {rows} | {' | '.join(f'{times[a]:.2f}' for a in arms)} |"
                for rows, times in memory.items()
            ),
        ]
    return "\n".join(lines) + "\n"


def plot(results: Dict[str, Any], path: Path) -> None:
    """Words/s as text, batches and threads grow."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    geometries = results["geometries"]
    kinds = list(next(iter(geometries.values()))["growth"])
    fig, axes = plt.subplots(1, len(kinds), figsize=(12, 3.5), layout="constrained")
    for ax, kind in zip(chain(axes), kinds):
        for name, found in geometries.items():
            speeds = found["growth"][kind]
            ax.plot([int(n) for n in speeds], list(speeds.values()), "o-", label=name)
        ax.set(xlabel=kind, ylabel="words/s, float32", yscale="log")
        if kind != "threads":
            ax.set_xscale("log", base=2)
        ax.grid(alpha=0.3)
    axes[0].legend()
    fig.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
