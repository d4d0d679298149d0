"""The evaluation sets -> .spacy: one Doc per example, each sentence marked as one. What
a task gives and asks for beyond a Doc's own annotation is in `doc.user_data`
(task.py).

    python data.py EVAL ewt corpus
"""

import csv
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import spacy
import typer
from spacy.tokens import Doc, DocBin
from spacy.training import biluo_tags_to_spans, iob_to_biluo
from spacy.vocab import Vocab

from spacy_elmo.storage import hold

Rows = List[List[str]]
Reader = Callable[[Path, str], Iterator[Doc]]


def main(data: Path, name: str, output: Path) -> None:
    """Convert one set, by its name here."""
    if name not in SETS:
        raise SystemExit(f"{name}: no set is called so. There are {', '.join(SETS)}.")
    convert_all(data, name, output)


def convert_all(data: Path, name: str, output: Path) -> None:
    """Make the .spacy files of a set, those that are there, too."""
    for part in ("train", "dev", *(["test"] if name in WITH_TEST else [])):
        convert(data, name, part, output, fresh=True)


def convert(
    data: Path, name: str, part: str, output: Path, fresh: bool = False
) -> Path:
    """RETURNS (Path): The .spacy file, which is made if it is not there."""
    path = output / f"{name}_{part}.spacy"
    source, mark = str(data.resolve()), output / "source.txt"
    if mark.is_file() and mark.read_text(encoding="utf8") != source:
        raise SystemExit(f"{output} was made of another folder than {source}.")
    with hold(path.with_suffix(".lock")):  # of several runs, one makes it
        if fresh or not path.is_file():
            mark.write_text(source, encoding="utf8")
            unfinished = path.with_suffix(".unfinished")
            docs = DocBin(docs=SETS[name](data, part), store_user_data=True)
            docs.to_disk(unfinished)
            unfinished.replace(path)
    return path


def sentences(text: str) -> Iterator[Rows]:
    """Rows of the tokens of each sentence. BTC has tokens without a character."""
    for block in text.split("\n\n"):
        lines = [x for x in block.split("\n") if x and x[:2] != "# "]
        rows = [x.split("\t") for x in lines if x[0] != "\t"]
        if rows:
            yield rows


def one_sentence(vocab: Vocab, words: List[str], **annotation: Any) -> Doc:
    starts = [i == 0 for i in range(len(words))]
    return Doc(vocab, words=words, sent_starts=starts, **annotation)


def read_lines(path: Path) -> Iterator[List[str]]:
    """Fields of the lines of a file, which may be gzipped."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf8")
    return (line.split("\t") for line in text.split("\n") if line)


def treebank(name: str) -> Reader:
    def read(data: Path, part: str) -> Iterator[Doc]:
        vocab = Vocab()
        text = (data / name / f"{part}.tsv").read_text(encoding="utf8")
        return (tree(vocab, rows) for rows in sentences(text))

    return read


def entities(folder: str, prefix: str = "") -> Reader:
    def read(data: Path, part: str) -> Iterator[Doc]:
        vocab = Vocab()
        text = (data / folder / f"{prefix}{part}.tsv").read_text(encoding="utf8")
        return (named(vocab, rows) for rows in sentences(text))

    return read


def language(code: str, name: str) -> Reader:
    """Of the folder `languages` beside the others; the tags are the universal ones."""

    def read(data: Path, part: str) -> Iterator[Doc]:
        vocab = Vocab()
        path = data.parent / "languages" / code / f"{name}_{part}.tsv.xz"
        with lzma.open(path, "rt", encoding="utf8") as file:
            text = file.read()
        for rows in sentences(text):
            yield named(vocab, rows) if name == "ner" else tree(vocab, rows, tag=3)

    return read


def tree(vocab: Vocab, rows: Rows, tag: int = 4) -> Doc:
    heads = [int(r[5]) - 1 if r[5] != "0" else i for i, r in enumerate(rows)]
    return Doc(
        vocab, words=[r[1] for r in rows], lemmas=[r[2] for r in rows],
        pos=[r[3] for r in rows], tags=[r[tag] for r in rows], heads=heads,
        # spaCy's name of it, which its parser knows
        deps=["ROOT" if r[6] == "root" else r[6] for r in rows],
    )  # fmt: skip


def named(vocab: Vocab, rows: Rows) -> Doc:
    doc = one_sentence(vocab, [r[0] for r in rows])
    doc.ents = biluo_tags_to_spans(doc, iob_to_biluo([r[1] for r in rows]))
    return doc


def srl_ewt(data: Path, part: str) -> Iterator[Doc]:
    """Gives the predicates' tokens, asks for BIO tags of each."""
    vocab = Vocab()
    text = (data / "srl_ewt" / f"{part}.tsv").read_text(encoding="utf8")
    for rows in sentences(text):
        roles = [[r[column] for r in rows] for column in range(4, len(rows[0]))]
        if roles:
            doc = one_sentence(vocab, [r[1] for r in rows], tags=[r[2] for r in rows])
            doc.user_data["given"] = [tags.index("B-V") for tags in roles]
            doc.user_data["gold"] = roles
            yield doc


def labeled(vocab: Vocab, texts: List[List[str]], label: str) -> Doc:
    """One text or two, of which the length of the first is given, and a label."""
    starts = [i == 0 for words in texts for i in range(len(words))]
    doc = Doc(vocab, words=[w for words in texts for w in words], sent_starts=starts)
    doc.user_data.update(given=len(texts[0]), gold=label)
    return doc


def sst5(train: str) -> Reader:
    def read(data: Path, part: str) -> Iterator[Doc]:
        vocab = Vocab()
        name = train if part == "train" else f"{part}.tsv"
        for label, text in read_lines(data / "sst5" / name):
            yield labeled(vocab, [text.split()], label)

    return read


def goemotions(data: Path, part: str) -> Iterator[Doc]:
    """Comments of one sentiment: positive, neutral, negative or ambiguous."""
    nlp = spacy.blank("en")
    for groups, _, text in read_lines(data / "goemotions" / f"{part}.tsv"):
        words = [t.text for t in nlp.make_doc(text)]
        if "," not in groups and words:
            yield labeled(nlp.vocab, [words], groups)


def snli(data: Path, part: str) -> Iterator[Doc]:
    """To train on, SNLI's pairs and the counterfactual revisions of others."""
    nlp = spacy.blank("en")
    lines = list(read_lines(data / "snli" / f"small_{part}.tsv"))
    pairs = [(label, a.split(), b.split()) for label, a, b in lines]
    if part == "train":
        for label, *texts in read_lines(data / "snli" / "cad_train.tsv"):
            a, b = ([t.text for t in nlp.make_doc(text.strip())] for text in texts)
            pairs.append((label, a, b))
    for label, a, b in pairs:
        yield labeled(nlp.vocab, [a, b], label)


def squad(data: Path, part: str) -> Iterator[Doc]:
    """Question and paragraph. Trained is only where the answer is unique."""
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    for (line,) in read_lines(data / "squad" / f"{part}.jsonl.gz"):
        row = json.loads(line)
        start, end = row["answer_start"], row["answer_start"] + len(row["answer"])
        question, context = nlp.make_doc(row["question"].strip()), nlp(row["context"])
        span = context.char_span(start, end, alignment_mode="expand")
        if span is None or (part == "train" and not row["unique"]):
            continue
        tokens = [*question, *context]
        n = len(question)
        doc = Doc(
            nlp.vocab, words=[t.text for t in tokens],
            spaces=[bool(t.whitespace_) for t in tokens],
            sent_starts=[i == 0 for i in range(n)] + [t.is_sent_start for t in context],
        )  # fmt: skip
        gold = {"span": (span.start + n, span.end + n), "answers": row["answers"]}
        doc.user_data.update(given=n, gold=gold)
        yield doc


def coref(name: str, prefix: str, column: int, split: str) -> Reader:
    """Documents. Gives the mentions, asks for their clusters."""

    def read(data: Path, part: str) -> Iterator[Doc]:
        vocab = Vocab()
        text = (data / name / f"{prefix}{part}.tsv").read_text(encoding="utf8")
        for document in re.split(r"^# newdoc id.*$", text, flags=re.M)[1:]:
            sents = list(sentences(document))
            rows = [row for sent in sents for row in sent]
            starts = [i == 0 for sent in sents for i in range(len(sent))]
            words = [row[1 if name == "gum" else 0] for row in rows]
            doc = Doc(vocab, words=words, sent_starts=starts)
            of_entity = clusters([row[column] for row in rows], split)
            yield with_clusters(doc, of_entity)

    return read


def clusters(column: List[str], split: Optional[str]) -> List[List[Tuple[int, int]]]:
    """Spans of each entity, from brackets: "(3" opens, "3)" closes what was opened
    last. What stands after the entity's number, its type, is left out.
    """
    found: Dict[str, List[Tuple[int, int]]] = {}
    open_at: Dict[str, List[int]] = {}
    for i, cell in enumerate(column):
        for part in cell.split(split) if cell != "_" else ():
            entity = part.strip("()").split("|")[0]
            if part.startswith("("):
                open_at.setdefault(entity, []).append(i)
            if part.endswith(")"):
                span = (open_at[entity].pop(), i + 1)
                found.setdefault(entity, []).append(span)
    return list(found.values())


def with_clusters(doc: Doc, found: Iterable[Iterable[Tuple[int, int]]]) -> Doc:
    # Two entities of the same words are one mention: the first.
    seen: Dict[Tuple[int, int], int] = {}
    for i, cluster in enumerate(found):
        for span in cluster:
            seen.setdefault(span, i)
    mentions = sorted(seen)
    entities = sorted(set(seen.values()))
    doc.user_data["given"] = mentions
    doc.user_data["gold"] = [[m for m in mentions if seen[m] == i] for i in entities]
    return doc


def gap(data: Path, part: str) -> Iterator[Doc]:
    """Paragraphs of three mentions: a pronoun, and two names of which it means one or
    none.
    """
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    text = (data / "gap" / f"{part}.tsv").read_text(encoding="utf8")
    for row in csv.reader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE):
        if row:
            doc = nlp(row[1])
            pronoun, a, b = (mention(doc, row[i], int(row[i + 1])) for i in (2, 4, 7))
            cluster = [pronoun] + [x for x, i in ((a, 6), (b, 9)) if row[i] == "TRUE"]
            with_clusters(doc, [cluster, [a], [b]])
            doc.user_data["pronoun"] = pronoun
            yield doc


def mention(doc: Doc, text: str, start: int) -> Tuple[int, int]:
    span = doc.char_span(start, start + len(text), alignment_mode="expand")
    return span.start, span.end


WITH_TEST = ("ewt", "uner_ewt")
SETS: Dict[str, Reader] = {
    "ewt": treebank("ewt"),
    "gum": treebank("gum"),
    "uner_ewt": entities("uner_ewt"),
    "wnut17": entities("wnut17"),
    "litbank": entities("litbank", "entities_"),
    "btc": entities("btc"),
    "srl_ewt": srl_ewt,
    "sst5": sst5("train.tsv"),
    "sst5_phrases": sst5("train_phrases.tsv.gz"),
    "goemotions": goemotions,
    "snli": snli,
    "squad": squad,
    "coref_litbank": coref("litbank", "coref_", column=1, split="|"),
    "coref_gum": coref("gum", "", column=7, split=" "),
    "gap": gap,
    **{
        f"{name}_{code}": language(code, name)
        for code in ("de", "fr", "hu", "ko", "pt", "ru")
        for name in ("ud", "ner")
    },
}

if __name__ == "__main__":
    typer.run(main)
