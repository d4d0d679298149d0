"""Scores of pipelines on Universal Dependencies with gold tokens and sentences, as the
script of the CoNLL 2018 shared task counts: all tokens, punctuation too, and relations
without their subtypes.

    python evaluate.py corpus/ewt_dev.spacy --pipeline ELMo=training/ud/model-best

Other pipelines in results.json stay there.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Dict, Iterable, List, Tuple

import spacy
import torch
import typer
from spacy.tokens import Doc, DocBin, Token

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from data import one_sentence  # noqa: E402
from harness import machine, machines, save, table  # noqa: E402
from run import size_of  # noqa: E402

# Gold tokens too: UPOS, XPOS, LAS of the test part, and of which release.
PUBLISHED = [
    ["UDPipe 1.2, without contextual vectors", "2.5", "94.4", "93.9", "81.1"],
    ["UDPipe 2 on a frozen multilingual BERT", "2.15", "97.50", "97.17", "91.52"],
]
COLUMNS = ["UPOS", "XPOS", "lemmas", "UAS", "LAS"]


def main(
    paths: List[Path],
    pipeline: Annotated[List[str], typer.Option(help="NAME=PATH; can be repeated")],
    output: Path = HERE,
) -> None:
    """Write results.json and results.md."""
    results = output / "results.json"
    found: Dict[str, Dict[str, Any]] = {}
    if results.is_file():
        found = json.loads(results.read_text())["pipelines"]
    for given in pipeline:
        name, _, folder = given.partition("=")
        nlp = spacy.load(folder)
        parts = {
            path.stem: score(nlp, DocBin().from_disk(path).get_docs(nlp.vocab))
            for path in paths
        }
        megabytes = size_of(Path(folder)) / 2**20
        found[name] = {"machine": machine(), "MB": megabytes, "parts": parts}
    save("results", {"pipelines": found}, render(found), output)


def render(found: Dict[str, Dict[str, Any]]) -> str:
    rows = [
        [name, part, *(f"{x:,.1f}" for x in scores.values()), f"{of['MB']:.0f}"]
        for name, of in found.items()
        for part, scores in of["parts"].items()
    ]
    header = ["pipeline", "part", *COLUMNS, "words/s", "MB"]
    return f"""# A pipeline on Universal Dependencies, English EWT 2.16

Gold tokens and sentences; accuracies in percent. Words per second of the whole pipeline
in prediction, by the processor time of one core.

{table(header, rows)}
What others have published (github.com/ufal/udpipe), on the test part of other releases:

{table(["", "UD", "UPOS", "XPOS", "LAS"], PUBLISHED)}
{machines(found)}
"""


def score(nlp: Any, golds: Iterable[Doc]) -> Dict[str, float]:
    golds = list(golds)
    torch.set_num_threads(1)
    start = time.thread_time()
    docs = list(nlp.pipe(one_sentence(gold.vocab, words(gold)) for gold in golds))
    seconds = time.thread_time() - start
    right: Counter[str] = Counter()
    for token, gold in zip(tokens(docs), tokens(golds)):
        for name, value in values(token).items():
            right[name] += value == values(gold)[name]
    n = sum(map(len, golds))
    return {**{k: 100 * x / n for k, x in right.items()}, "words/s": n / seconds}


def words(doc: Doc) -> List[str]:
    return [token.text for token in doc]


def tokens(docs: Iterable[Doc]) -> Iterable[Token]:
    return (token for doc in docs for token in doc)


def values(token: Token) -> Dict[str, Tuple[Any, ...]]:
    relation = token.dep_.split(":")[0]
    return {
        "UPOS": (token.pos_,), "XPOS": (token.tag_,), "lemmas": (token.lemma_,),
        "UAS": (token.head.i,), "LAS": (token.head.i, relation),
    }  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
