"""Words per second of `elmo` beside AllenNLP and simple_elmo, on the same sentences
and weights, and its share of the machine's peak.

    python benchmarks/speed.py --text ewt/dev.tsv --peers FOLDER --output benchmarks

Each peer has an environment of its own in FOLDER, made if it is not there; without
--peers ours is measured alone. Weights are random, in the official geometries.
"""

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import torch
from harness import (
    Seconds,
    make_parser,
    medians,
    peak_products,
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
    Sentences,
    make_pipeline,
    measure_geometries,
    read_sentences,
)
from peers import PEERS, ask, start_peer
from spacy.tokens import Doc

from spacy_elmo.bilm import precision as precisions

# What a peer's users take, and what may be faster: sorted by length, in batches of
BATCHES = (32, 64, 128)
# Memory for the vectors of words, in MB: none, so that every word is new, or enough
CACHES = {"new words": 0, "words seen before": 1024}
DOCS = {"segmenter": {"@misc": "spacy_elmo.segment_docs.v1"}}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", type=Path, help="A treebank's .tsv")
    parser.add_argument("--peers", type=Path, help="Folder of their environments")
    parser.add_argument("--geometries", nargs="+", default=OFFICIAL)
    parser.add_argument("--precisions", nargs="+", default=fast_precisions())
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--product", type=int, default=2048, help="Rows of the peak's")
    args = parser.parse_args()
    results = measure_geometries(measure, args)
    save("speed", results, render(results), args.output)
    if args.output is not None:
        panels = {
            name: found["words_per_second"]
            for name, found in results["geometries"].items()
        }
        plot(args.output / "speed.png", panels, "words/s")


def fast_precisions() -> List[str]:
    """Float32, and what is faster on this machine."""
    cpu = torch.device("cpu")
    fast = {
        "bfloat16": precisions.has_fast_bfloat16(cpu),
        "int8": precisions.has_int8(cpu),
    }
    return ["float32", *(name for name in fast if fast[name])]


def measure(name: str, folder: Path, args: argparse.Namespace) -> Dict[str, Any]:
    """All arms for one geometry."""
    sentences = read_sentences(args.text, args.words)
    ours = {
        f"spacy_elmo, {precision}, {words}": partial(
            layers_of, make_pipeline(folder, precision=precision, cache_mb=mb, **DOCS)
        )
        for precision in args.precisions
        for words, mb in CACHES.items()
    }
    arms = {arm: timed(partial(run, sentences)) for arm, run in ours.items()}
    peers = {
        peer: start_peer(peer, folder, args.peers, args.threads)
        for peer in PEERS
        if args.peers is not None
    }
    by_length = sorted(sentences, key=len)
    for peer, process in peers.items():
        arms[f"{peer}, as used"] = partial(run_peer, process, batches(sentences, 32))
        for size in BATCHES:
            work = batches(by_length, size)
            arms[f"{peer}, sorted, {size}"] = partial(run_peer, process, work)
    dtypes = {p: dtype for p, dtype in DTYPES.items() if p in args.precisions}
    for precision, dtype in dtypes.items():
        arms[f"peak, {precision}"] = partial(product_seconds, dtype, args.product)
    seconds = take_turns(arms, args.turns)
    n_words = sum(map(len, sentences))
    found = {
        "words": n_words,
        "words_per_second": {
            arm: n_words / median
            for arm, median in medians(seconds).items()
            if not arm.startswith("peak")
        },
        "ratios": {peer: ratios(seconds, peer) for peer in peers},
        "share_of_peak": {
            precision: ratio(
                seconds[f"peak, {precision}"],
                seconds[f"spacy_elmo, {precision}, words seen before"],
            )
            * operations(name, sentences)
            / (2 * args.product**3)
            for precision in dtypes
        },
        "outputs": compare(ours, peers, sentences[:8]),
    }
    for process in peers.values():
        process.terminate()
    return found


def layers_of(nlp: Any, sentences: Sentences) -> List[Any]:
    """The array of each sentence, in a Doc of its own."""
    docs = [Doc(nlp.vocab, words=words) for words in sentences]
    return list(nlp.get_pipe("elmo").predict(docs))


def batches(sentences: Sentences, size: int) -> List[Sentences]:
    return [sentences[i : i + size] for i in range(0, len(sentences), size)]


def run_peer(process: Any, work: List[Sentences]) -> float:
    return float(ask(process, {"batches": work})["seconds"])


def product_seconds(dtype: torch.dtype, size: int) -> float:
    return 2 * size**3 / peak_products(dtype, size)


def ratios(seconds: Seconds, peer: str) -> Dict[str, Dict[str, float]]:
    """How many times faster than a peer each of our arms is."""
    theirs = {arm: times for arm, times in seconds.items() if arm.startswith(peer)}
    best = min(theirs, key=lambda arm: statistics.median(theirs[arm]))
    return {
        arm: {
            other: ratio(theirs[other], times) for other in (f"{peer}, as used", best)
        }
        for arm, times in seconds.items()
        if arm.startswith("spacy_elmo")
    }


def operations(name: str, sentences: Sentences) -> int:
    """Of the LSTMs' products, if all are made: four gates from [x, h] and the
    projection, for each word and both boundaries, in two layers and two directions.
    """
    dim, projection, _ = GEOMETRIES[name]
    n_tokens = sum(len(words) + 2 for words in sentences)
    return n_tokens * 2 * 2 * 2 * (4 * dim * 2 * projection + dim * projection)


def compare(ours: Any, peers: Any, sentences: Sentences) -> Dict[str, float]:
    """The mean cosine of our other precisions to the first, and the largest difference
    of each peer from it.
    """
    (_, exact), *others = ours.items()
    wanted = exact(sentences)
    found = {
        f"{arm}, mean cosine": mean_cosine(run(sentences), wanted)
        for arm, run in others
        if arm.endswith("new words")
    }
    for name, process in peers.items():
        theirs = ask(process, {"batches": [sentences], "show": True})["layers"]
        found[f"{name}, largest difference"] = max(
            float(np.abs(np.array(a) - b).max()) for a, b in zip(theirs, wanted)
        )
    return found


def mean_cosine(found: List[Any], wanted: List[Any]) -> float:
    """Of the layers of the LSTMs."""
    a, b = (np.concatenate(arrays)[:, 1:] for arrays in (found, wanted))
    norms = np.linalg.norm(a, axis=2) * np.linalg.norm(b, axis=2)
    return float(((a * b).sum(2) / norms).mean())


def render(results: Dict[str, Any]) -> str:
    parts = [
        f"Measured on {results['machine']}. Medians over {results['turns']} turns; "
        "each ratio is the median of the turns' ratios.\n"
    ]
    for name, found in results["geometries"].items():
        dim, projection, _ = GEOMETRIES[name]
        parts += [
            f"## {name} ({dim}/{projection}), {found['words']:,} words\n",
            table(["", "words/s"], found["words_per_second"].items(), ",.0f"),
        ]
        for by_arm in found["ratios"].values():
            others = list(next(iter(by_arm.values())))
            rows = [[arm, *values.values()] for arm, values in by_arm.items()]
            parts.append(table(["times faster than", *others], rows, ".2f"))
        parts += [
            "The LSTMs' products, if all were made, at the machine's peak, over the "
            "time of the component (words seen before):\n",
            table(["", "share"], found["share_of_peak"].items(), ".2f"),
            table(["outputs", ""], found["outputs"].items(), ".6g"),
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
