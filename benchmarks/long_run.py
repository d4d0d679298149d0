"""Memory of a long run: words through `nlp.pipe`, then one long Doc.

    python benchmarks/long_run.py --text heldout.txt --output benchmarks

The text is read again from its start until the words are reached, every time round
with other numbers in it, so that neither the vocabulary nor a cache sees only what it
knows.
"""

import argparse
import itertools
import json
import resource
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import spacy
from harness import machine
from spacy.language import Language
from spacy.tokens import Doc

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, help="Text, a paragraph a line")
    parser.add_argument("--weights", default="en_elmo_sm")
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--doc-words", type=int, default=200_000)
    parser.add_argument("--every", type=int, default=50_000)
    parser.add_argument("--output", type=Path, help="For long_run.json and long_run.md")
    args = parser.parse_args()
    nlp = spacy.blank("en")
    nlp.max_length = 10_000_000
    model = {"@architectures": "spacy_elmo.BiLM.v1", "weights": args.weights}
    nlp.add_pipe("elmo", config={"model": model})
    results = {
        "machine": machine(),
        "weights": args.weights,
        "pipe": measure_pipe(nlp, args.text, args.words, args.every),
        "doc": measure_doc(nlp, args.text, args.doc_words),
    }
    table = render(results)
    if args.output is not None:
        path = args.output / "long_run.json"
        path.write_text(json.dumps(results, indent=2) + "\n")
        (args.output / "long_run.md").write_text(table)
    print(table)


def measure_pipe(
    nlp: Language, path: Optional[Path], n_words: int, every: int
) -> List[Dict[str, float]]:
    """Memory of the process after each `every` words. The Docs are let go, and the
    strings of the vocabulary with them (`nlp.memory_zone`).
    """
    records = []
    done, lines = 0, texts(path)
    while done < n_words:
        with nlp.memory_zone():
            wanted = min(done + every, n_words)
            for doc in nlp.pipe(lines):
                done += len(doc)
                if done >= wanted:
                    break
        records.append({"words": done, "rss_mb": rss_mb()})
        print(json.dumps(records[-1]), flush=True)
    return records


def measure_doc(nlp: Language, path: Optional[Path], n_words: int) -> Dict[str, Any]:
    words = itertools.chain.from_iterable(map(str.split, texts(path)))
    doc = Doc(nlp.vocab, words=list(itertools.islice(words, n_words)))
    before = rss_mb()
    nlp(doc)
    return {
        "words": len(doc),
        "array_mb": doc._.elmo.nbytes / 2**20,
        "rss_before_mb": before,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def texts(path: Optional[Path]) -> Iterator[str]:
    if path is None:
        path = ROOT / "assets" / "sample_train.iob"
        lines = path.read_text(encoding="utf8").splitlines()
        lines = [" ".join(w.split("|")[0] for w in x.split()) for x in lines]
    else:
        lines = [x for x in path.read_text(encoding="utf8").splitlines() if x]
    for turn in itertools.count():
        for i, line in enumerate(lines):
            yield f"{line} No. {turn}-{i}."


def rss_mb() -> float:
    status = Path("/proc/self/status")
    if status.is_file():
        (line,) = [x for x in status.read_text().split("\n") if x.startswith("VmRSS")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def render(results: Dict[str, Any]) -> str:
    doc = results["doc"]
    lines = [
        f"`nlp.pipe` with {results['weights']} on {results['machine']}.",
        "",
        "| words | memory of the process, MB |",
        "|---|---|",
        *(f"| {r['words']:,} | {r['rss_mb']:,.0f} |" for r in results["pipe"]),
        "",
        f"One Doc of {doc['words']:,} words: the process grew from "
        f"{doc['rss_before_mb']:,.0f} MB to {doc['peak_mb']:,.0f} MB at most, "
        f"{doc['array_mb']:,.0f} MB of which are the array of the layers.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
