"""Annotated sentences -> .spacy files."""

import re
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from spacy.cli.convert import CONVERTERS, autodetect_ner_format
from spacy.language import Language
from spacy.parts_of_speech import IDS as UPOS
from spacy.tokens import Doc, DocBin, Token
from spacy.vocab import Vocab

from ..errors import CorpusError, Errors, unusable
from ..text.documents import make_doc
from ..text.files import suffix_of
from ..text.lines import CONVERT, CONVERT_UTF16, UTF16, open_text

# Sentences of a Doc, so that the parser learns where one ends.
N_SENTS = 10
# Without a dev file, one Doc in ten is held out.
DEV_EVERY = 10
N_EXAMPLES = 3
# A sentence of more lines is a file without empty lines.
MAX_SENTENCE = 1000
NO_TAG = ("-", "_")
# What the components learn from.
ANNOTATION = {
    "tagger": "tags (XPOS)", "morphologizer": "parts of speech (UPOS)",
    "parser": "heads (HEAD, DEPREL)", "ner": "entities",
}  # fmt: skip
ENTITY_TAG = re.compile(r"O|[BILU]-.+")
# Between documents. The converter knows one form of it, and makes one Doc of each.
DOCUMENT = re.compile(r"^-DOCSTART-.*\n?", re.MULTILINE)
N_COLUMNS, FORM, POS, XPOS, FEATS, HEAD, MISC = 10, 1, 3, 4, 5, 6, 9  # of a .conllu
# The tag of a name in MISC whose label is of more than capitals: the converter reads
# these alone.
BAD_NAME = re.compile(r"(?:(?:name|NE)=)?[BILU]-(?![A-Z_]+$)(.+)")
NAME = re.compile(r"(?:^|\|)(?:name=|NE=)?([BILU])-([A-Z_]+)(?:\||$)")
MULTIWORD = re.compile(r"(\d+)-(\d+)")
BLANK_LINES = re.compile(r"\n{2,}")

Docs = List[Doc]


def read_treebank(path: Path) -> Docs:
    """Read annotated sentences, ten to a Doc.

    path (Path): A .conllu (a multiword token becomes one token, as it is in the text),
        a .iob or .conll with one token per line and its tag in the last column,
        a .iob with one sentence per line, or a .spacy; compressed or not.
    RAISES (CorpusError): If the file is of another kind, damaged or without
        annotation.
    """
    try:
        docs = [doc for doc in _read(path) if len(doc)]
    except CorpusError:
        raise
    except UnicodeDecodeError as e:
        number = e.object[: e.start].count(b"\n") + 1
        raise unusable(path, f"line {number} is not UTF-8. {CONVERT}") from None
    except Exception as e:  # whatever a converter raises
        problem = f"is not readable as annotated sentences ({type(e).__name__}: {e})"
        raise unusable(path, problem) from None
    if problem := _problem_with_words(docs):
        raise unusable(path, problem)
    for doc in docs:
        for token in doc:
            if _is_in_circle(token):
                words = doc[max(0, token.i - 3) : token.i + 4].text
                raise unusable(path, f"the heads go in a circle at {words!r}")
            # A multiword token has those of its words: ADP_-, ___
            tags = set(token.tag_.split("_"))
            if "-" in tags or tags == {""}:
                token.tag_ = ""
            if token.dep_ in NO_TAG:
                token.dep_ = ""  # to spaCy, its head is missing then
        # Makes spaCy train on these tokens, not on those of the tokenizer.
        doc.has_unknown_spaces = True
    components = components_for(docs)
    if not components:
        raise unusable(path, "has no tags, no heads and no entities")
    if "tagger" not in components:  # those that the converter copied
        for token in chain(*docs):
            token.tag_ = ""
    return docs


def _read(path: Path) -> Iterable[Doc]:
    suffix = suffix_of(path)
    with open_text(path) as file:
        content = file.read()
    if suffix == ".spacy":
        return DocBin().from_bytes(content).get_docs(Vocab())
    if content.startswith(UTF16):
        raise unusable(path, CONVERT_UTF16)
    data = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    kind = "conllu" if suffix == ".conllu" else "conll"
    if suffix == ".iob" and autodetect_ner_format(data) == "iob":
        kind = "iob"
    data = _checked(path, data, kind)
    if not data.strip():
        return []
    if kind == "conllu":
        data = _completed(path, data)
    return CONVERTERS[kind](data, n_sents=N_SENTS, merge_subtokens=True, no_print=True)


def _checked(path: Path, data: str, kind: str) -> str:
    """Lines without comments.

    RAISES (CorpusError): If a converter would misread a line, or fail at it without its
        number.
    """
    lines, n_columns = [], 0
    for number, line in enumerate(map(str.strip, data.split("\n")), 1):
        if _is_comment(line, kind):
            continue
        problem = _problem_in(line, kind)
        if not problem and kind == "conll" and not line.startswith("-DOCSTART-"):
            before, n_columns = n_columns, len(line.split())
            if before and n_columns and n_columns != before:
                problem = f"it has {n_columns} columns, the line before {before}"
        if problem:
            raise unusable(path, f"line {number}: {problem}")
        lines.append(line)
    if kind != "iob" and len(lines) > MAX_SENTENCE and "" not in lines[:-1]:
        raise unusable(path, "no empty lines stand between its sentences")
    return DOCUMENT.sub("", "\n".join(lines))


def _is_comment(line: str, kind: str) -> bool:
    """A line that begins with # can be a word, except in a .conllu."""
    if kind == "conllu":
        return line.startswith("#")
    return line == "#" or (line.startswith("# ") and bool(_problem_in(line, kind)))


def _completed(path: Path, data: str) -> str:
    """A .conllu without the gaps that the converter would fill by a guess.

    RAISES (CorpusError): If a head is beyond its sentence.
    """
    blocks = filter(None, (block.strip() for block in BLANK_LINES.split(data)))
    sentences = [[line.split("\t") for line in s.split("\n")] for s in blocks]
    words = [row for rows in sentences for row in rows if row[0].isdigit()]
    if any(row[XPOS] not in NO_TAG for row in words):
        for row in words:  # "_" would become the part of speech
            row[XPOS] = "-" if row[XPOS] in NO_TAG else row[XPOS]
    for rows in sentences:
        words = [row for row in rows if row[0].isdigit()]
        _add_heads(words)
        for row in rows:
            if found := MULTIWORD.fullmatch(row[0]):
                _share_name(words[int(found[1]) - 1 : int(found[2])])
        for row in words:
            if int(row[HEAD]) > len(words):
                text = " ".join(row[FORM] for row in words)[:60]
                problem = f"the head of {row[FORM]!r} is {row[HEAD]}, of {len(words)}"
                raise unusable(path, f"{problem} words: {text!r}")
    return "\n\n".join("\n".join(map("\t".join, rows)) for rows in sentences)


def _add_heads(words: List[List[str]]) -> None:
    """Give words without a head the root's, or else the first word's: to the converter
    they are sentences of their own.
    """
    root = next((row[0] for row in words if row[HEAD] == "0"), None)
    for row in words:
        if row[HEAD] in NO_TAG:
            row[HEAD], row[HEAD + 1] = root or "0", "_"
            root = root or row[0]


def _share_name(words: List[List[str]]) -> None:
    """Give the words of a multiword token the first name that is among them: to the
    converter, the token is in the name that its uppermost word is in.
    """
    found = next(filter(None, (NAME.search(row[MISC]) for row in words)), None)
    if found:
        tags = ["B" if found[1] in "BU" else "I", *"I" * (len(words) - 1)]
        for row, tag in zip(words, tags):
            row[MISC] = f"{tag}-{found[2]}"


def _problem_in(line: str, kind: str) -> str:
    """What is wrong with a line, or nothing."""
    if not line or line.startswith("-DOCSTART-"):
        return ""
    if kind != "conllu":
        if space := next((c for c in line if c.isspace() and c not in " \t"), ""):
            return f"a word has a space in it (U+{ord(space):04X})"
        tokens = [line.split()]
        if kind == "iob":  # a sentence: word|tag word|tag
            tokens = [token.split("|") for token in line.split()]
            if not all(t[0] and len(t) == len(tokens[0]) in (2, 3) for t in tokens):
                return "its tokens are not all word|name or all word|tag|name"
        tags = [token[-1] for token in tokens]
        bad = next((tag for tag in tags if not ENTITY_TAG.fullmatch(tag)), None)
        return f"the tag is {bad!r}, not O, B-... or I-..." if bad else ""
    columns = line.split("\t")
    if len(columns) != N_COLUMNS:
        return f"there are {len(columns)} columns between tabs, not {N_COLUMNS}"
    if columns[0].isdigit() and (problem := _problem_with_word(columns)):
        return problem
    found = filter(None, map(BAD_NAME.fullmatch, columns[MISC].split("|")))
    if name := next(found, None):
        return f"the label of a name is {name[1]!r}, not of A to Z and _ alone"
    return ""


def _problem_with_word(columns: List[str]) -> str:
    """What is wrong with a word of a .conllu, or nothing."""
    pos, feats, head = columns[POS], columns[FEATS], columns[HEAD]
    if not columns[FORM]:
        return "the word (FORM) is empty"
    if pos not in NO_TAG and pos not in UPOS:
        return f"the part of speech (UPOS) is {pos!r}, which is none"
    if feats not in NO_TAG and not all("=" in feat for feat in feats.split("|")):
        return f"the features (FEATS) are {feats!r}, not Name=Value|..."
    if not (head.isdecimal() or head in NO_TAG):
        return f"the head is {head!r}, not a number"
    return ""


def _problem_with_words(docs: Docs) -> str:
    """What is wrong with the words of a treebank, or nothing."""
    words = [[token.text for token in doc] for doc in docs]
    withheld = sum(row.count("_") for row in words)
    if 2 * withheld > sum(map(len, words)):
        return f"{withheld:,} of its words are withheld ('_'). Get the text as well"
    if words and all(row[:2] == ["1", "2"] for row in words):
        return "its words are numbers: the first column must have the words"
    return ""


def _is_in_circle(token: Token) -> bool:
    """Whether the heads above a token never come to a root."""
    last = [token, *token.ancestors][-1]  # at most as many as the Doc has tokens
    return bool(last.head.i != last.i)


def components_for(docs: Docs) -> List[str]:
    """The components of spaCy that can learn from these Docs."""
    tokens = [token for doc in docs for token in doc]
    found: Dict[str, Set[Any]] = {
        # Without tags, the converter repeats the parts of speech (of a multiword token,
        # all of them: ADP_DET).
        "tagger": {
            t.tag_ for t in tokens if not t.pos_ or set(t.tag_.split("_")) - UPOS.keys()
        },
        "morphologizer": {t.pos_ for t in tokens},
        "parser": {t.dep_ for t in tokens},
        "ner": {t.ent_type_ for t in tokens},
    }
    return [name for name, labels in found.items() if labels - {""}]


def compare_tokens(docs: Docs, nlp: Language) -> Tuple[float, List[str]]:
    """The share of a treebank's tokens that a tokenizer makes too, and examples of
    the others, each with what it makes of them.

    RAISES (CorpusError): If the tokenizer takes no such text.
    """
    n = same = 0
    examples: List[str] = []
    for doc in docs:
        found = make_doc(nlp, doc.text)
        for token in doc:
            end = token.idx + len(token)
            span = found.char_span(token.idx, end, alignment_mode="expand")
            others = [t.text for t in span or []]
            n += 1
            same += others == [token.text]
            if others != [token.text] and len(examples) < N_EXAMPLES:
                examples.append(f"{token.text!r} becomes {' '.join(others)!r}")
    return same / n, examples


def write_split(docs: Docs, dev: Optional[Docs], folder: Path, name: str) -> int:
    """Write train/NAME.spacy and dev/NAME.spacy. Without `dev`, a tenth of the Docs is
    held out.

    RETURNS (int): The number of tokens in dev.
    RAISES (CorpusError): If there are too few Docs for that.
    """
    if dev is None:
        dev = docs[DEV_EVERY - 1 :: DEV_EVERY]
        docs = [doc for i, doc in enumerate(docs) if i % DEV_EVERY != DEV_EVERY - 1]
        if not dev:
            n = {"n": len(docs), "every": DEV_EVERY, "n_sents": N_SENTS}
            raise CorpusError(Errors.E132.format(name=name, **n))
    for part, mine in (("train", docs), ("dev", dev)):
        path = folder / part / f"{name}.spacy"
        path.parent.mkdir(parents=True, exist_ok=True)
        DocBin(docs=mine).to_disk(path)
    return sum(map(len, dev))
