"""Peak memory of pretraining on a corpus of 1 MB and on one of 1 GB.

    python benchmarks/corpus_memory.py --text CORPUS --output benchmarks

The large corpus repeats the text, with words of its own in each repetition, so that its
distinct words grow as those of real text would. Each run is `python -m spacy elmo
pretrain` in a new process: the cache, and then some steps.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator

from harness import machine

from spacy_elmo.text import find_texts, read_documents

CONFIG = Path(__file__).parents[1] / "configs" / "pretrain_small.cfg"
# Every so many words, one that earlier repetitions do not have: about as many distinct
# words as news text of that length (Heaps' law).
NEW_WORD = 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="A file, directory or glob")
    parser.add_argument("--mb", type=int, nargs="+", default=[1, 1000])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--output", type=Path, help="For corpus_memory.json")
    args = parser.parse_args()
    results: Dict[str, Any] = {"machine": machine(), "steps": args.steps}
    with TemporaryDirectory() as folder:
        for mb in args.mb:
            results[f"{mb} MB"] = measure(args.text, mb, args.steps, Path(folder))
    text = json.dumps(results, indent=2)
    print(text)
    if args.output is not None:
        (args.output / "corpus_memory.json").write_text(text + "\n")


def measure(text: str, mb: int, steps: int, folder: Path) -> Dict[str, Any]:
    corpus, output = folder / f"{mb}.txt", folder / f"out{mb}"
    with corpus.open("w", encoding="utf8") as file:
        for document in documents(text):
            file.write(document)
            if file.tell() >= mb << 20:
                break
    command = [
        sys.executable, "-m", "spacy", "elmo", "pretrain", str(CONFIG), str(output),
        "--paths.train", str(corpus), "--training.max_tokens", str(steps * 128 * 24),
    ]  # fmt: skip
    start = time.perf_counter()
    process = subprocess.Popen(command)
    # Of this child alone, unlike RUSAGE_CHILDREN.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    words = (output / "corpus" / "train" / "words.txt").read_bytes().count(b"\n")
    return {
        "bytes": corpus.stat().st_size,
        "distinct words": words,
        "peak, MB": usage.ru_maxrss // 1024,
        "seconds": round(time.perf_counter() - start),
    }


def documents(text: str) -> Iterator[str]:
    """Without end: in each repetition some words are new."""
    n = 0
    for repetition in count():
        for file in find_texts(text):
            for document in read_documents(file):
                words = "\n".join(document).split(" ")
                if repetition:
                    for i in range(n % NEW_WORD, len(words), NEW_WORD):
                        words[i] = f"{words[i]}{repetition}x{n + i}"
                n += len(words)
                yield " ".join(words) + "\n\n"


if __name__ == "__main__":
    main()
