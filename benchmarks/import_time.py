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

from harness import machine

SCRIPT = """
import importlib.metadata as metadata, sys, time
hidden = "spacy-elmo" if sys.argv[1] == "without" else "nothing"
found = metadata.EntryPoints(
    entry for distribution in metadata.distributions()
    if distribution.metadata["Name"].replace("_", "-") != hidden
    for entry in distribution.entry_points
)
metadata.entry_points = lambda **params: found.select(**params)
start = time.perf_counter()
import spacy
spacy.blank("en")
print(time.perf_counter() - start)
from spacy.util import registry
assert registry.has("architectures", "spacy_elmo.BiLM.v1") == (sys.argv[1] == "with")
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
