"""What the installed plugin adds to `import spacy; spacy.blank("en")`.

    python benchmarks/import_time.py --output benchmarks

New processes in turn, with the plugin's entry points and with them hidden, as if it
were not installed; the ratio is the median over the pairs.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

from accuracy import machine

SCRIPT = """
import importlib.metadata as metadata, sys, time
found = metadata.entry_points
def entry_points(**params):
    hidden = "spacy_elmo" if sys.argv[1] == "without" else "nothing"
    return metadata.EntryPoints(
        e for e in found(**params) if not e.value.startswith(hidden)
    )
metadata.entry_points = entry_points
start = time.perf_counter()
import spacy
spacy.blank("en")
print(time.perf_counter() - start)
assert ("spacy_elmo" in sys.modules) == (sys.argv[1] == "with")
assert "torch" not in sys.modules or "spacy_elmo.bilm" not in sys.modules
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--output", type=Path, help="For import_time.json")
    args = parser.parse_args()
    seconds: Dict[str, Any] = {"with": [], "without": []}
    for turn in range(1 + args.turns):
        for arm, times in seconds.items():
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT, arm], check=True, capture_output=True,
                text=True,
            )  # fmt: skip
            if turn:
                times.append(float(done.stdout))
    ratios = [a / b for a, b in zip(seconds["with"], seconds["without"])]
    results = {
        "machine": machine(),
        **{f"{arm}, s": statistics.median(times) for arm, times in seconds.items()},
        "ratio": statistics.median(ratios),
    }
    text = json.dumps(results, indent=2)
    if args.output is not None:
        (args.output / "import_time.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
