"""The evaluation sets -> .spacy. What a task needs beside a Doc's own annotation is in
`doc.user_data`: "pairs" of spans, each (start, end, start, end), with their "labels".
Tokens that the encoder sees marked are entities of that label.

    python data.py ../../shared/data/eval ewt corpus
"""

import json
import random
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import spacy
import typer
from spacy.tokens import Doc, DocBin, Span
from spacy.training import biluo_tags_to_spans, iob_to_biluo
from spacy.vocab import Vocab

PARTS = ("train", "dev")
# Pairs of a mention with as many mentions before it.
MENTIONS_BEFORE = 8
MARK = "MARK"
MAX_PREDICATES = {"train": 12_000, "dev": 2_000}

Rows = List[List[str]]


def main(data: Path, name: str, output: Path) -> None:
    """Convert one set, by its name here."""
    for part in PARTS:
        convert(data, name, part, output)


def convert(data: Path, name: str, part: str, output: Path) -> Path:
    """RETURNS (Path): The .spacy file, which is made if it is not there."""
    path = output / f"{name}_{part}.spacy"
    if not path.is_file():
        output.mkdir(parents=True, exist_ok=True)
        docs = list(SETS[name](data, part))
        # Unpacking it takes a millisecond a Doc.
        store = any(doc.user_data for doc in docs)
        DocBin(docs=docs, store_user_data=store).to_disk(path)
    return path


def sentences(path: Path) -> Iterator[Rows]:
    """Rows of the tokens of each sentence."""
    for block in path.read_text(encoding="utf8").split("\n\n"):
        rows = [x.split("\t") for x in block.split("\n") if x and x[:2] != "# "]
        if rows:
            yield rows


def treebank(name: str) -> Callable[[Path, str], Iterator[Doc]]:
    def read(data: Path, part: str) -> Iterator[Doc]:
        vocab = Vocab()
        for rows in sentences(data / name / f"{part}.tsv"):
            heads = [int(r[5]) - 1 if r[5] != "0" else i for i, r in enumerate(rows)]
            yield Doc(
                vocab, words=[r[1] for r in rows], pos=[r[3] for r in rows],
                tags=[r[4] for r in rows], heads=heads, deps=[r[6] for r in rows],
            )  # fmt: skip

    return read


def entities(folder: str, prefix: str = "") -> Callable[[Path, str], Iterator[Doc]]:
    def read(data: Path, part: str) -> Iterator[Doc]:
        vocab = Vocab()
        for rows in sentences(data / folder / f"{prefix}{part}.tsv"):
            doc = Doc(vocab, words=[r[0] for r in rows])
            doc.ents = biluo_tags_to_spans(doc, iob_to_biluo([r[1] for r in rows]))
            yield doc

    return read


def sst5(data: Path, part: str) -> Iterator[Doc]:
    vocab = Vocab()
    for line in (data / "sst5" / f"{part}.tsv").read_text(encoding="utf8").split("\n"):
        if line:
            label, text = line.split("\t")
            doc = Doc(vocab, words=text.split())
            doc.cats = {str(i): float(str(i) == label) for i in range(5)}
            yield doc


def srl_ewt(data: Path, part: str) -> Iterator[Doc]:
    """A Doc for each predicate, its arguments as BIO tags. Predicates without an
    argument (auxiliaries, mostly) are left out.
    """
    vocab = Vocab()
    found: List[Tuple[List[str], List[str]]] = []
    for rows in sentences(data / "srl_ewt" / f"{part}.tsv"):
        for column in range(4, len(rows[0])):
            roles = [r[column] for r in rows]
            if any(role not in ("O", "B-V", "I-V") for role in roles):
                found.append(([r[1] for r in rows], roles))
    random.Random(0).shuffle(found)
    for words, roles in found[: MAX_PREDICATES[part]]:
        doc = Doc(vocab, words=words, tags=[r.replace("B-V", "V") for r in roles])
        marked = [i for i, r in enumerate(roles) if r == "B-V"]
        doc.ents = [Span(doc, i, i + 1, label=MARK) for i in marked]
        yield doc


def snli(data: Path, part: str) -> Iterator[Doc]:
    """Premise and hypothesis as the two sentences of a Doc."""
    vocab = Vocab()
    path = data / "snli" / f"small_{part}.tsv"
    for line in path.read_text(encoding="utf8").split("\n"):
        if line:
            label, premise, hypothesis = line.split("\t")
            sents = [premise.split(), hypothesis.split()]
            yield paired(vocab, sents, [(0, 1)], [label])


def xquad_en(data: Path, part: str) -> Iterator[Doc]:
    """A question with each sentence of its paragraph: "yes" where the answer starts."""
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    path = data / "xquad_en" / f"{part}.jsonl"
    for line in path.read_text(encoding="utf8").split("\n"):
        if line:
            row = json.loads(line)
            context = list(nlp(row["context"]).sents)
            question = [t.text for t in nlp.make_doc(row["question"])]
            sents = [question, *([t.text for t in s] for s in context)]
            labels = [
                "yes" if s.start_char <= row["answer_start"] < s.end_char else "no"
                for s in context
            ]
            pairs = [(0, i + 1) for i in range(len(context))]
            if "yes" in labels:
                yield paired(nlp.vocab, sents, pairs, labels)


def paired(vocab: Vocab, sents: List[List[str]], pairs: Any, labels: List[str]) -> Doc:
    """A Doc of sentences, and pairs of sentences with their labels."""
    starts = [i == 0 for words in sents for i in range(len(words))]
    words = [word for sent in sents for word in sent]
    doc = Doc(vocab, words=words, sent_starts=starts)
    bounds = [i for i, start in enumerate(starts) if start] + [len(words)]
    doc.user_data["pairs"] = [
        [bounds[a], bounds[a + 1], bounds[b], bounds[b + 1]] for a, b in pairs
    ]
    doc.user_data["labels"] = labels
    return doc


def coref_gum(data: Path, part: str) -> Iterator[Doc]:
    """Documents with pairs of gold mentions: "yes" where both are one entity."""
    vocab = Vocab()
    text = (data / "gum" / f"{part}.tsv").read_text(encoding="utf8")
    for document in re.split(r"^# newdoc id.*$", text, flags=re.M)[1:]:
        blocks = [b.split("\n") for b in document.split("\n\n")]
        sents = [[x.split("\t") for x in b if x and x[:2] != "# "] for b in blocks]
        rows = [row for sent in sents for row in sent]
        starts = [i == 0 for sent in sents for i in range(len(sent))]
        doc = Doc(vocab, words=[r[1] for r in rows], sent_starts=starts)
        spans = mentions([r[7] for r in rows])
        pairs = [
            (a, b)
            for i, b in enumerate(spans)
            for a in spans[max(0, i - MENTIONS_BEFORE) : i]
        ]
        doc.user_data["pairs"] = [[*a[:2], *b[:2]] for a, b in pairs]
        doc.user_data["labels"] = ["yes" if a[2] == b[2] else "no" for a, b in pairs]
        yield doc


def mentions(column: List[str]) -> List[Tuple[int, int, str]]:
    """(start, end, entity) of the bracketed mentions, in the order of their starts."""
    found = []
    open_at: Dict[str, List[int]] = {}
    for i, cell in enumerate(column):
        for part in cell.split() if cell != "_" else ():
            entity = re.match(r"\(?([^|)]*)", part)[1]
            if part.startswith("("):
                open_at.setdefault(entity, []).append(i)
            if part.endswith(")"):
                found.append((open_at[entity].pop(), i + 1, entity))
    return sorted(found)


SETS: Dict[str, Callable[[Path, str], Iterator[Doc]]] = {
    "ewt": treebank("ewt"),
    "gum": treebank("gum"),
    "uner_ewt": entities("uner_ewt"),
    "wnut17": entities("wnut17"),
    "litbank": entities("litbank", "entities_"),
    "sst5": sst5,
    "srl_ewt": srl_ewt,
    "coref_gum": coref_gum,
    "snli": snli,
    "xquad_en": xquad_en,
}

if __name__ == "__main__":
    typer.run(main)
