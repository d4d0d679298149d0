"""Memory of a long run: words through `nlp.pipe`, then one long Doc (Linux).

    python benchmarks/long_run.py --text heldout.txt --output benchmarks

The text is repeated until the words are reached, each time with other numbers in it, so
that the vocabulary and the caches meet new words.
"""

import re
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from harness import machine, make_parser, save, table
from inputs import make_pipeline, read_sentences
from spacy.language import Language
from spacy.tokens import Doc


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", type=Path, help="Text, one paragraph per line")
    parser.add_argument("--weights", default="en_elmo_sm")
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--doc-words", type=int, default=200_000)
    parser.add_argument("--every", type=int, default=50_000)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    nlp = make_pipeline(args.weights)
    nlp.max_length = 10_000_000
    results = {
        "machine": machine(args.threads),
        "weights": args.weights,
        "pipe": measure_pipe(nlp, args.text, args.words, args.every),
        "doc": measure_doc(nlp, args.text, args.doc_words),
    }
    save("long_run", results, render(results), args.output)


def measure_pipe(
    nlp: Language, path: Optional[Path], n_words: int, every: int
) -> List[Tuple[int, float]]:
    """Memory of the process after each `every` words. The Docs are dropped, and the
    strings of the vocabulary with them (`nlp.memory_zone`).
    """
    records: List[Tuple[int, float]] = []
    done, lines = 0, texts(path)
    while done < n_words:
        with nlp.memory_zone():
            wanted = min(done + every, n_words)
            for doc in nlp.pipe(lines):
                done += len(doc)
                if done >= wanted:
                    break
        records.append((done, memory_mb("VmRSS")))
        print(*records[-1], flush=True)
    return records


def measure_doc(nlp: Language, path: Optional[Path], n_words: int) -> Dict[str, float]:
    words = chain.from_iterable(map(str.split, texts(path)))
    doc = Doc(nlp.vocab, words=list(islice(words, n_words)))
    before = memory_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    nlp(doc)
    return {
        "words": len(doc), "before": before, "peak": memory_mb("VmHWM"),
        "array": doc._.elmo.nbytes / 2**20,
    }  # fmt: skip


def texts(path: Optional[Path]) -> Iterator[str]:
    """Lines without end."""
    if path is None:
        lines = [" ".join(words) for words in read_sentences(None, 1000)]
    else:
        lines = [line for line in path.read_text(encoding="utf8").splitlines() if line]
    for turn in count():
        for i, line in enumerate(lines):
            yield f"{line} No. {turn}-{i}."


def memory_mb(key: str) -> float:
    """Of this process, now (VmRSS) or at most so far (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(rf"{key}:\s*(\d+)", status)[0]) / 1024


def render(results: Dict[str, Any]) -> str:
    doc = results["doc"]
    rows = [[f"{n_words:,}", mb] for n_words, mb in results["pipe"]]
    return "\n".join(
        [
            f"`nlp.pipe` with {results['weights']} on {results['machine']}.\n",
            table(["words", "memory of the process, MB"], rows, ",.0f"),
            f"One Doc of {doc['words']:,} words: the process grew from "
            f"{doc['before']:,.0f} MB to {doc['peak']:,.0f} MB at most, "
            f"{doc['array']:,.0f} MB of which are the array of the layers.\n",
        ]
    )


if __name__ == "__main__":
    main()
