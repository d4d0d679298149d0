"""What the installed plugin adds to `import spacy; spacy.blank("en")`.

    python benchmarks/import_time.py --output benchmarks

New processes take turns: one sees the plugin's entry points, the other does not, as if
the plugin were not installed.
"""

import subprocess
import sys
from functools import partial

from harness import machine, make_parser, medians, ratio, save, table, take_turns

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
    parser = make_parser(__doc__, threads=False)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--warm-up", type=int, default=1)
    args = parser.parse_args()
    arms = {arm: partial(seconds_of, arm) for arm in ("with", "without")}
    seconds = take_turns(arms, args.turns, args.warm_up)
    found = {
        **{f"{arm} the plugin, s": median for arm, median in medians(seconds).items()},
        "ratio": ratio(seconds["with"], seconds["without"]),
    }
    results = {"machine": machine(), "turns": args.turns, **found}
    text = f'Start of a process with `spacy.blank("en")`, {machine()}.\n\n'
    text += table(["", ""], found.items(), ".3f")
    save("import_time", results, text, args.output)


def seconds_of(arm: str) -> float:
    command = [sys.executable, "-c", SCRIPT, arm]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
