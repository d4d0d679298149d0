"""The nearest contexts of the words in queries.txt, by `spacy elmo neighbors`.

    python neighbors.py 'lm/openstax.txt.xz' en_elmo_sm 1500000

results.md and results.json have a few words of each sentence: the text belongs to
others.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import spacy

from spacy_elmo.bilm import BiLM
from spacy_elmo.text.documents import read_texts
from spacy_elmo.text.files import find_texts
from spacy_elmo.weights import resolve

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from harness import save, table  # noqa: E402


def main() -> None:
    text, weights, limit = sys.argv[1:]
    queries = (HERE / "queries.txt").read_text(encoding="utf8").splitlines()
    done = subprocess.run(
        [
            sys.executable, "-m", "spacy", "elmo", "neighbors", text, *queries,
            "--weights", weights, "--limit", limit, "--n", "4",
            "--json",
        ],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    words = nearest_words(
        weights, text, int(limit), [f["query"]["word"] for f in found]
    )
    results = [
        {
            "query": around(f["query"], 4),
            "words": near,
            "contexts": list(map(around, f["contexts"])),
        }
        for f, near in zip(found, words)
    ]
    rows = [
        [row["query"], ", ".join(row["words"]), " · ".join(row["contexts"])]
        for row in results
    ]
    header = ["query", "nearest words", "nearest contexts"]
    about = f"""# Nearest neighbors of ambiguous words (Table 4)

Among {int(limit):,} tokens of textbooks that the biLM was trained on: the nearest other
words by the token layer, which knows no context, and the nearest contexts by the top
layer.

"""
    save("results", {"queries": results}, about + table(header, rows), HERE)


def nearest_words(
    weights: str, text: str, limit: int, queries: List[str], n: int = 4
) -> List[List[str]]:
    """The words of the text whose token vectors, which know no context, are nearest."""
    tokens: List[str] = []
    nlp = spacy.blank("en")
    for file in find_texts(text):
        for part in read_texts(file):
            if len(tokens) < limit:
                tokens += [token.text for token in nlp.make_doc(part)]
    words = sorted({word for word in tokens if not word.isspace()} | set(queries))
    bilm = BiLM.from_path(resolve(weights))
    layers, _ = bilm.encode([[word] for word in words])
    table = np.concatenate(layers)[:, 0]
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    found = []
    for query in queries:
        scores = table @ table[words.index(query)]
        near = [words[i] for i in np.argsort(-scores)[: n + 1]]
        found.append([word for word in near if word != query][:n])
    return found


def around(context: Dict[str, Any], n: int = 1) -> str:
    """The word and its n neighbors on both sides."""
    text, start, end = context["text"], context["start"], context["end"]
    before, after = text[:start].split()[-n:], text[end:].split()[:n]
    words = [*before, f"**{text[start:end]}**", *after]
    return " ".join(words).replace("|", "\\|")


if __name__ == "__main__":
    main()
