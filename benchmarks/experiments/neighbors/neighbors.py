"""The nearest contexts of the words in queries.txt, by `spacy elmo neighbors`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
text, weights, limit = sys.argv[1:]
queries = (HERE / "queries.txt").read_text(encoding="utf8").splitlines()
done = subprocess.run(
    [
        sys.executable, "-m", "spacy", "elmo", "neighbors", text, *queries,
        "--weights", weights, "--limit", limit, "--n", "3", "--tokenized",
        "--html", str(HERE / "results.html"),
    ],
    check=True, stdout=subprocess.PIPE, text=True,
)  # fmt: skip
(HERE / "results.txt").write_text(done.stdout, encoding="utf8")
print(done.stdout)
