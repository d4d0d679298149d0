"""The nearest contexts of the words in queries.txt, by `spacy elmo neighbors`.

    python neighbors.py 'lm/openstax.txt.xz' en_elmo_sm 1500000

results.html shows the sentences; results.md and results.json have three words of each,
for the sentences belong to others.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

HERE = Path(__file__).resolve().parent


def main() -> None:
    text, weights, limit = sys.argv[1:]
    queries = (HERE / "queries.txt").read_text(encoding="utf8").splitlines()
    done = subprocess.run(
        [
            sys.executable, "-m", "spacy", "elmo", "neighbors", text, *queries,
            "--weights", weights, "--limit", limit, "--n", "4",
            "--json", "--html", str(HERE / "results.html"),
        ],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = [
        "# Nearest neighbours of ambiguous words (Table 4)", "",
        f"Among {int(limit):,} tokens of textbooks that the biLM was trained on: the "
        "nearest other words by the token layer, which knows no context, and the "
        "nearest contexts by the top layer.", "",
        "| query | nearest words | nearest contexts |", "|---|---|---|",
    ]  # fmt: skip
    results = [
        {
            "query": around(found["query"], 4),
            "words": [word["word"] for word in found["words"]],
            "contexts": list(map(around, found["contexts"])),
        }
        for found in json.loads(done.stdout)
    ]
    for row in results:
        words, contexts = ", ".join(row["words"]), " · ".join(row["contexts"])
        lines.append(f"| {row['query']} | {words} | {contexts} |")
    table = "\n".join([*lines, ""])
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    (HERE / "results.json").write_text(text, encoding="utf8")
    (HERE / "results.md").write_text(table, encoding="utf8")
    print(table)


def around(context: Dict[str, Any], n: int = 1) -> str:
    """The word and its n neighbours on both sides."""
    text, start, end = context["text"], context["start"], context["end"]
    before, after = text[:start].split()[-n:], text[end:].split()[:n]
    words = [*before, f"**{text[start:end]}**", *after]
    return " ".join(words).replace("|", "\\|")


if __name__ == "__main__":
    main()
