"""Peak memory of pretraining on a corpus of 1 MB and on one of 1 GB.

    python benchmarks/corpus_memory.py --text CORPUS --output benchmarks

The large corpus repeats the text with new words in each repetition, so that its
distinct words grow as those of real text would. Each run is `python -m spacy elmo
pretrain` in a new process: tokenization, and then some steps.
"""

import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Dict, Iterator, List

from harness import ROOT, machine, make_parser, save, table

from spacy_elmo.text.documents import read_documents
from spacy_elmo.text.files import find_texts

# One word in so many is new in a repetition: about as many distinct words as in news
# text of that length (Heaps' law).
NEW_WORD = 150


def main() -> None:
    parser = make_parser(__doc__, threads=False)
    parser.add_argument("--text", required=True, help="A file, directory or glob")
    parser.add_argument("--mb", type=float, nargs="+", default=[1, 1000])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("overrides", nargs="*", help="Of the config, after --")
    args = parser.parse_args()
    command = [
        sys.executable, "-m", "spacy", "elmo", "pretrain",
        str(ROOT / "configs" / "pretrain_small.cfg"),
    ]  # fmt: skip
    steps = ["--training.max_tokens", str(args.steps * 128 * 24), *args.overrides]
    runs = {}
    with TemporaryDirectory() as folder:
        for mb in args.mb:
            corpus, output = Path(folder, f"{mb}.txt"), Path(folder, f"{mb}")
            write_corpus(args.text, mb, corpus)
            paths = [str(output), "--paths.train", str(corpus)]
            runs[f"{mb:g} MB"] = {
                "bytes": corpus.stat().st_size,
                **measure([*command, *paths, *steps]),
            }
    header = ["corpus", *next(iter(runs.values()))]
    rows = [[name, *run.values()] for name, run in runs.items()]
    text = f"{args.steps} steps of `pretrain_small.cfg` on {machine()}.\n\n"
    results = {"machine": machine(), "steps": args.steps, "runs": runs}
    save("corpus_memory", results, text + table(header, rows), args.output)


def write_corpus(text: str, mb: float, path: Path) -> None:
    with path.open("w", encoding="utf8") as file:
        for document in documents(text):
            file.write(document)
            if file.tell() >= mb * 2**20:
                break


def measure(command: List[str]) -> Dict[str, int]:
    """Peak memory and seconds of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(command)
    # Of this child alone, unlike RUSAGE_CHILDREN.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    seconds = round(time.perf_counter() - start)
    return {"peak memory, MB": usage.ru_maxrss // 1024, "seconds": seconds}


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
