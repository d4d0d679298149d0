"""What `elmo` costs: words per second as text, batches and threads grow; one sentence
alone; loading and saving; epochs of training; where the weights lie in memory.

    python benchmarks/costs.py --text ewt/dev.tsv --output benchmarks

Weights are random, in the official geometries.
"""

import argparse
import mmap
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, List

import numpy as np
import spacy
import torch
from harness import (
    ROOT,
    make_parser,
    medians,
    plot,
    ratio,
    save,
    table,
    take_turns,
    timed,
)
from inputs import (
    GEOMETRIES,
    OFFICIAL,
    make_pipeline,
    measure_geometries,
    read_rows,
    read_sentences,
)
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from spacy_elmo.bilm import BiLM

N_STEPS = 11  # of one direction over ten words and a boundary
GROWTH_WORDS = {"original": 2000, "small": 10_000, "toy": 100}
EPOCH_WORDS = {"original": 4000, "small": 12_000, "toy": 50}
BATCH_TOKENS = (128, 512, 1024, 2048, 4096, 8192)
LOADING = """
import re, sys, spacy, spacy_elmo.bilm
def peak():
    # Not ru_maxrss: a process inherits that of its parent.
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
before = peak()
spacy.load(sys.argv[1])
print(peak() - before)
"""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", type=Path, required=True, help="A treebank's .tsv")
    parser.add_argument("--geometries", nargs="+", default=OFFICIAL)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    results = measure_geometries(measure, args)
    save("costs", results, render(results), args.output)
    if args.output is not None:
        geometries = results["geometries"].items()
        kinds = next(iter(results["geometries"].values()))["growth"]
        panels = {kind: {n: g["growth"][kind] for n, g in geometries} for kind in kinds}
        plot(args.output / "costs.png", panels, "words/s, float32")


def measure(name: str, folder: Path, args: argparse.Namespace) -> Dict[str, Any]:
    return {
        "growth": growth(folder, args, GROWTH_WORDS[name]),
        "latency": latency(name, folder),
        "pipeline": load_and_save(folder),
        "epochs": epochs(folder, args, EPOCH_WORDS[name]),
        "memory": memory_layouts(name),
    }


def growth(
    folder: Path, args: argparse.Namespace, n_words: int
) -> Dict[str, Dict[int, float]]:
    """Words/s by words of text, by tokens of a batch and by threads."""
    bilm = BiLM.from_path(folder)

    def words_per_second(n: int, **arguments: int) -> float:
        sentences = read_sentences(args.text, n)
        run = timed(lambda: bilm.encode(sentences, **arguments))
        median = statistics.median(run() for _ in range(args.turns))
        return sum(map(len, sentences)) / median

    by_threads = {}
    for n in range(1, args.threads + 1):
        torch.set_num_threads(n)
        by_threads[n] = words_per_second(n_words)
    sizes = [n_words // 8, n_words // 4, n_words // 2, n_words, 2 * n_words]
    return {
        "words of text": {n: words_per_second(n) for n in sizes},
        "tokens per batch": {
            n: words_per_second(n_words, max_batch_tokens=n) for n in BATCH_TOKENS
        },
        "threads": by_threads,
    }


def latency(name: str, folder: Path) -> Dict[str, float]:
    """Milliseconds of a sentence of ten words, and those that it takes to read the
    recurrent weights from memory at each step.
    """
    nlp = make_pipeline(folder)
    text = "The play that she wrote opens in the spring ."
    seconds = take_turns({"nlp": timed(lambda: nlp(text))}, turns=40, warm_up=5)
    dim, projection, _ = GEOMETRIES[name]
    n_weights = 2 * 2 * (4 * dim * projection + dim * projection)
    block = torch.zeros(1 << 26)
    bandwidth = block.nbytes / min(timed(block.sum)() for _ in range(10))
    return {
        "nlp(text)": 1e3 * medians(seconds)["nlp"],
        "reading the recurrent weights": 1e3 * N_STEPS * n_weights * 4 / bandwidth,
    }


def load_and_save(folder: Path) -> Dict[str, float]:
    """Seconds to save and to load a pipeline, and by how much loading raises the peak
    memory of a process that has imported everything (Linux).
    """
    nlp = make_pipeline(folder)
    nlp(Doc(nlp.vocab, words=["play"]))
    first, second = folder / "first", folder / "second"
    save_first = timed(lambda: nlp.to_disk(first))()
    save_second = timed(lambda: nlp.to_disk(second))()
    load = statistics.median(timed(lambda: spacy.load(first))() for _ in range(3))
    command = [sys.executable, "-c", LOADING, str(first)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {
        "save, s": save_first, "save unchanged, s": save_second, "load, s": load,
        "weights, MB": (first / "elmo" / "weights.hdf5").stat().st_size / 2**20,
        "peak memory of loading, MB": int(done.stdout) / 1024,
    }  # fmt: skip


def epochs(folder: Path, args: argparse.Namespace, n_words: int) -> Dict[str, Any]:
    """Seconds of the first and of a later epoch of a tagger, as `spacy train` updates:
    with ELMo; without its cache of sentences; with the same listener on ready-made
    vectors; without ELMo.
    """
    rows = read_rows(args.text, n_words)
    arms = {
        "ELMo": timed(tagger(rows, folder)),
        "ELMo, no cache": timed(tagger(rows, folder, sentence_cache_mb=0)),
        "ready-made vectors": timed(tagger(rows, folder, ready_made=True)),
        "no ELMo": timed(tagger(rows)),
    }
    first = take_turns(arms, turns=1, warm_up=0)
    later = take_turns(arms, args.turns, warm_up=0)
    return {
        "words": sum(map(len, rows)),
        "seconds": {
            name: [first[name][0], median] for name, median in medians(later).items()
        },
        "against ready-made": ratio(later["ELMo"], later["ready-made vectors"]),
    }


def tagger(
    rows: Any, weights: Any = None, ready_made: bool = False, **arguments: Any
) -> Callable[[], None]:
    """A function that trains a tagger for an epoch."""
    # Not tagger.cfg: without ELMo, that would see the shapes of words alone.
    config = spacy.util.load_config(ROOT / "configs" / "ner_tagger.cfg")
    model = config["components"]["tagger"]["model"]
    if weights is None:
        nlp = spacy.blank("en")
        model["tok2vec"]["embed"] = model["tok2vec"]["embed"]["embed"]
    else:
        nlp = make_pipeline(weights, **arguments)
    nlp.add_pipe("tagger", config={"model": model})
    examples = []
    for sentence in rows:
        words, tags = [row[1] for row in sentence], [row[4] for row in sentence]
        reference = Doc(nlp.vocab, words=words, tags=tags)
        examples.append(Example(Doc(nlp.vocab, words=words), reference))
    optimizer = nlp.initialize(lambda: examples)
    if ready_made:
        elmo: Any = nlp.get_pipe("elmo")
        docs = [eg.predicted for eg in examples]
        arrays = {doc.text: array for doc, array in zip(docs, elmo.predict(docs))}
        elmo.predict = lambda docs: [arrays[doc.text] for doc in docs]

    def epoch() -> None:
        for batch in minibatch(examples, 64):
            # A new Doc each time, as spaCy's corpus reader makes them.
            fresh = [Example(eg.predicted.copy(), eg.reference) for eg in batch]
            nlp.update(fresh, sgd=optimizer, drop=0.1, losses={})

    return epoch


def memory_layouts(name: str) -> Dict[str, Dict[str, float]]:
    """Milliseconds of the recurrent product of a step on one thread, by where its
    weights lie: plain rows, rows padded by a cache line, huge pages, a mapped file.
    """
    dim, projection, _ = GEOMETRIES[name]
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    plain = torch.randn(projection, 4 * dim)
    padded = torch.empty(projection, 4 * dim + 16)[:, :-16].copy_(plain)
    found = {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weight"
        plain.numpy().tofile(path)
        mapped = np.memmap(path, np.float32, "c", shape=tuple(plain.shape))
        weights = {
            "plain": plain, "padded": padded, "huge pages": huge_pages(plain),
            "mapped file": torch.from_numpy(mapped),
        }  # fmt: skip
        for n_rows in (1, 32, 128):
            h, out = torch.randn(n_rows, projection), torch.empty(n_rows, 4 * dim)
            arms = {
                layout: timed(partial(torch.mm, h, weight, out=out))
                for layout, weight in weights.items()
            }
            seconds = medians(take_turns(arms, turns=40))
            found[f"{n_rows} rows"] = {k: 1e3 * median for k, median in seconds.items()}
    torch.set_num_threads(n_threads)
    return found


def huge_pages(array: torch.Tensor) -> torch.Tensor:
    """A copy on huge pages, where the system has them."""
    page = 1 << 21
    block = mmap.mmap(-1, array.nbytes + page)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(block, dtype=torch.float32)
    start = -memory.data_ptr() % page // 4
    return memory[start : start + array.numel()].view(array.shape).copy_(array)


def render(results: Dict[str, Any]) -> str:
    parts = [
        f"Measured on {results['machine']}. Medians over {results['turns']} turns.\n"
    ]
    for name, found in results["geometries"].items():
        dim, projection, _ = GEOMETRIES[name]
        parts.append(f"## {name} ({dim}/{projection})\n")
        for kind, speeds in found["growth"].items():
            parts.append(table([kind, "words/s, float32"], speeds.items(), ",.0f"))
        trained, memory = found["epochs"], found["memory"]
        seconds = [[arm, *pair] for arm, pair in trained["seconds"].items()]
        layouts: List[str] = list(memory["1 rows"])
        times = [[n_rows, *by_layout.values()] for n_rows, by_layout in memory.items()]
        parts += [
            table(["a sentence of ten words", "ms"], found["latency"].items(), ".1f"),
            table(["a pipeline", ""], found["pipeline"].items(), ".2f"),
            f"Epochs of a tagger, {trained['words']:,} words, in seconds. A later one "
            f"takes {trained['against ready-made']:.2f} times what it takes on "
            "ready-made vectors.\n",
            table(["", "first", "later"], seconds, ".2f"),
            "The recurrent product of a step on one thread, ms, by the layout of its "
            "weights:\n",
            table(["", *layouts], times, ".2f"),
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
