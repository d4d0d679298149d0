"""Word senses by nearest neighbor, on each layer of the biLM (Table 5).

    python senses.py --data ../../../../shared/data/eval

As the paper: the vectors of each sense in the training part of SemCor are averaged; a
word of the dev part takes the nearest sense of its lemma and part of speech. WordNet is
not at hand: a lemma that the training part does not have stays without an answer, and
counts as wrong, in the baseline too (the most frequent sense of the training part).
Nothing is drawn at random. The deviation is that of resampled documents.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np
import typer

from spacy_elmo.bilm import BiLM
from spacy_elmo.weights import resolve

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from harness import save, table  # noqa: E402
from plots import grouped_bars  # noqa: E402

BATCH = 512
RESAMPLES = 1000

Lemma = Tuple[str, str]


class Sense(NamedTuple):
    """A word with its senses: words[start:end] of a sentence. The first is learned,
    any is right.
    """

    lemma: Lemma
    senses: Tuple[str, ...]
    start: int
    end: int
    document: int


Sentence = Tuple[List[str], List[Sense]]


def main(
    data: Annotated[Path, typer.Option(help="Folder of the evaluation sets")],
    weights: str = "en_elmo_sm",
) -> None:
    """Write senses.json, senses.md and senses.png."""
    bilm = BiLM.from_path(resolve(weights))
    train = list(read(data / "wsd" / "semcor_train.tsv"))
    dev = list(read(data / "wsd" / "semcor_dev.tsv"))
    frequent, sums = learn(bilm, train)
    hits: Dict[str, List[Tuple[int, bool]]] = defaultdict(list)
    for sense, vectors in embed(bilm, dev):
        counts = frequent.get(sense.lemma, Counter())
        first = counts.most_common(1)[0][0] if counts else None
        hits["most frequent sense"].append((sense.document, first in sense.senses))
        candidates = sums.get(sense.lemma, {})
        for layer in range(len(vectors)):
            found = nearest(vectors[layer], candidates, layer)
            hits[f"layer {layer}"].append((sense.document, found in sense.senses))
    results: Dict[str, Any] = {
        "train": sum(len(senses) for _, senses in train),
        "dev": len(hits["most frequent sense"]),
        "unknown lemmas": sum(
            s.lemma not in frequent for _, senses in dev for s in senses
        ),
        "accuracy": {arm: resampled(found) for arm, found in hits.items()},
    }
    save("senses", results, render(results), HERE)
    accuracy = {
        arm: (found["mean"], found["deviation"])
        for arm, found in results["accuracy"].items()
    }
    title = "Senses by nearest neighbor"
    grouped_bars(title, {"accuracy": accuracy}, HERE / "senses.png")


def part_of_speech(key: str) -> str:
    """The digit of a sense key of WordNet. Whether an adjective is a satellite (5) or
    the head (3) of its cluster is known of the sense alone.
    """
    return key.partition("%")[2][:1].replace("5", "3")


def read(path: Path) -> Iterator[Sentence]:
    """Sentences, the parts of multi-word expressions being words of their own."""
    words: List[str] = []
    senses: List[Sense] = []
    document = 0
    for line in path.read_text(encoding="utf8").split("\n"):
        if line.startswith("# newdoc"):
            document += 1
        elif line and not line.startswith("# "):
            form, lemma, pos, keys = line.split("\t")[:4]
            start = len(words)
            words += [part for part in form.split("_") if part] or [form]
            if keys != "_":
                # Other keys lack what the first begins with: "case%1:26:00::;1:11:00::"
                key, *others = keys.split(";")
                found = (key, *(f"{key.partition('%')[0]}%{k}" for k in others))
                senses.append(
                    Sense((lemma.lower(), part_of_speech(key) or pos), found,
                          start, len(words), document)
                )  # fmt: skip
        elif words:
            yield words, senses
            words, senses = [], []


def embed(bilm: BiLM, sentences: List[Sentence]) -> Iterator[Tuple[Sense, Any]]:
    """Each word with a sense, and its vectors (L + 1, width)."""
    for i in range(0, len(sentences), BATCH):
        batch = sentences[i : i + BATCH]
        layers, _ = bilm.encode([words for words, _ in batch])
        for (_, senses), array in zip(batch, layers):
            for sense in senses:
                yield sense, array[sense.start : sense.end].mean(axis=0)


def learn(
    bilm: BiLM, sentences: List[Sentence]
) -> Tuple[Dict[Lemma, "Counter[str]"], Dict[Lemma, Dict[str, Any]]]:
    """How often each lemma has each sense, and the sum of the sense's vectors, whose
    direction is that of their average.
    """
    frequent: Dict[Lemma, "Counter[str]"] = defaultdict(Counter)
    sums: Dict[Lemma, Dict[str, Any]] = defaultdict(dict)
    for sense, vectors in embed(bilm, sentences):
        first = sense.senses[0]
        frequent[sense.lemma][first] += 1
        sums[sense.lemma][first] = sums[sense.lemma].get(first, 0.0) + vectors
    return frequent, sums


def nearest(vector: Any, candidates: Dict[str, Any], layer: int) -> Any:
    """The sense of the largest cosine."""

    def cosine(sense: str) -> float:
        other = candidates[sense][layer]
        return float(vector @ other / max(float(np.linalg.norm(other)), 1e-9))

    return max(candidates, key=cosine, default=None)


def resampled(found: List[Tuple[int, bool]]) -> Dict[str, float]:
    """Accuracy, and its deviation over documents drawn with replacement."""
    documents: Dict[int, List[bool]] = defaultdict(list)
    for document, hit in found:
        documents[document].append(hit)
    counts = np.array([(sum(hits), len(hits)) for hits in documents.values()])
    draws = np.random.default_rng(0).integers(
        len(counts), size=(RESAMPLES, len(counts))
    )
    sums = counts[draws].sum(axis=1)
    return {
        "mean": float(counts[:, 0].sum() / counts[:, 1].sum()),
        "deviation": float((sums[:, 0] / sums[:, 1]).std()),
    }


def render(results: Dict[str, Any]) -> str:
    header = ["", "accuracy", "deviation over documents"]
    rows = [
        [arm, 100 * a["mean"], 100 * a["deviation"]]
        for arm, a in results["accuracy"].items()
    ]
    return f"""# Senses by nearest neighbor, on each layer (Table 5)

SemCor: {results["train"]:,} words with a sense to learn from, {results["dev"]:,} to
tell, {results["unknown lemmas"]:,} of them of unknown lemmas.

{table(header, rows, ".1f")}"""


if __name__ == "__main__":
    typer.run(main)
