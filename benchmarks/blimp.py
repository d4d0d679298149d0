"""How often the biLM finds the grammatical one of two sentences likelier (BLiMP).

    python benchmarks/blimp.py --data blimp.tsv.gz --output benchmarks

BLiMP (Warstadt et al. 2020) has 67 paradigms of 1,000 minimal pairs. A sentence's
likelihood is that of its words and its end, forward, of its words and its begin,
backward, or the product of both. A word outside the vocabulary is predicted as <UNK>,
but read by its characters, so that two of them change what is predicted around them.
A tie counts as wrong.
"""

import csv
import gzip
from collections import defaultdict
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Dict, Iterator, List, Tuple

import numpy as np
import spacy
import torch
from harness import machine, make_parser, save, table

from spacy_elmo import LanguageModel

# Overall accuracy in percent (Warstadt et al. 2020).
PUBLISHED = {
    "5-gram": 61.2, "LSTM": 69.8, "Transformer-XL": 69.6, "GPT-2": 81.5, "people": 88.6,
}  # fmt: skip
WAYS = ("both directions", "forward", "backward")
BATCH_PAIRS = 1000

Pair = Tuple[str, str, str, str]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="blimp.tsv.gz")
    parser.add_argument("--weights", default="en_elmo_sm")
    parser.add_argument("--every", type=int, default=1, help="Take each n-th pair")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = LanguageModel.from_path(args.weights)
    right, n_unknown, n_words = evaluate(model, args.data, args.every)
    terms: Dict[str, List[List[float]]] = defaultdict(list)
    for (term, _), outcomes in right.items():
        terms[term].append([100 * x for x in np.mean(outcomes, axis=0)])
    by_term = {
        term: dict(zip(WAYS, map(mean, zip(*found))))
        for term, found in sorted(terms.items())
    }
    paradigms = [found for term in terms.values() for found in term]
    overall = dict(zip(WAYS, map(mean, zip(*paradigms))))
    results = {
        "machine": machine(args.threads),
        "weights": str(args.weights),
        "pairs": sum(map(len, right.values())),
        "unknown words": n_unknown / n_words,
        "overall": overall,
        "phenomena": by_term,
        "paradigms": {
            paradigm: dict(zip(WAYS, (100 * np.mean(outcomes, axis=0)).tolist()))
            for (_, paradigm), outcomes in sorted(right.items())
        },
        "published": PUBLISHED,
    }
    text = (
        f"{args.weights}: how often the grammatical one of two sentences is likelier, "
        f"in percent of {results['pairs']:,} pairs of BLiMP. Of the words, "
        f"{results['unknown words']:.1%} are outside the vocabulary of "
        f"{len(model.words):,}.\n\n"
    )
    rows = [[name, *found.values()] for name, found in by_term.items()]
    rows.append(["all paradigms", *overall.values()])
    text += table(["phenomenon", *WAYS], rows, ".1f")
    text += "\nPublished, all paradigms (Warstadt et al. 2020):\n\n"
    text += table(list(PUBLISHED), [list(PUBLISHED.values())], ".1f")
    save("blimp", results, text, args.output)


def evaluate(
    model: LanguageModel, path: Path, every: int
) -> Tuple[Dict[Tuple[str, str], List[List[bool]]], int, int]:
    """By phenomenon and paradigm, for each pair whether each way of scoring is right;
    then how many words are unknown, and of how many.
    """
    tokenizer = spacy.blank("en").tokenizer
    right: Dict[Tuple[str, str], List[List[bool]]] = defaultdict(list)
    n_unknown = n_words = 0
    pairs = islice(read_pairs(path), 0, None, every)
    while batch := list(islice(pairs, BATCH_PAIRS)):
        sentences = [
            [token.text for token in tokenizer(text)]
            for pair in batch
            for text in pair[2:]
        ]
        scores = model.score(sentences, boundaries=True)
        bits = np.array([score.sum(axis=0) for score in scores]).reshape(-1, 2, 2)
        for (paradigm, term, _, _), (good, bad) in zip(batch, bits):
            outcome = [good.sum() < bad.sum(), *(good < bad)]
            right[term, paradigm].append([bool(x) for x in outcome])
        n_unknown += sum(model.is_oov(word) for words in sentences for word in words)
        n_words += sum(map(len, sentences))
    return right, n_unknown, n_words


def read_pairs(path: Path) -> Iterator[Pair]:
    """Paradigm, phenomenon, the good and the bad sentence."""
    with gzip.open(path, "rt", encoding="utf8") as file:
        for paradigm, term, good, bad in csv.reader(
            file, delimiter="\t", quoting=csv.QUOTE_NONE
        ):
            yield paradigm, term, good, bad


if __name__ == "__main__":
    main()
