"""Lines of annotated sentences, as spaCy's converters read them rightly."""

import re
from pathlib import Path
from typing import List

from spacy.parts_of_speech import IDS as UPOS

from ..errors import unusable

# A sentence of more lines is a file without empty lines.
MAX_SENTENCE = 1000
NO_TAG = ("-", "_")
ENTITY_TAG = re.compile(r"O|[BILU]-.+")
# Between documents. The converter knows one form of it, and makes one Doc of each.
DOCUMENT = re.compile(r"^-DOCSTART-.*\n?", re.MULTILINE)
# Of a .conllu
N_COLUMNS, FORM, POS, XPOS, FEATS, HEAD, DEPREL, MISC = 10, 1, 3, 4, 5, 6, 7, 9
# A name's tag in MISC whose label has other characters than the converter reads.
BAD_NAME = re.compile(r"(?:(?:name|NE)=)?[BILU]-(?![A-Z_]+$)(.+)")
NAME = re.compile(r"(?:^|\|)(?:name=|NE=)?([BILU])-([A-Z_]+)(?:\||$)")
MULTIWORD = re.compile(r"(\d+)-(\d+)")
BLANK_LINES = re.compile(r"\n{2,}")


def prepare_for_converter(path: Path, data: str, kind: str) -> str:
    """Lines without comments; of a .conllu without the gaps that the converter would
    fill by a guess.

    kind (str): conllu, conll (a token a line) or iob (a sentence a line).
    RAISES (CorpusError): If the converter would misread a line, or fail at it without
        its number.
    """
    data = _checked(path, data, kind)
    return _completed(path, data) if kind == "conllu" else data


def _checked(path: Path, data: str, kind: str) -> str:
    """Lines without comments and marks between documents."""
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
            row[HEAD], row[DEPREL] = root or "0", "_"
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
        return f"the label of a name is {name[1]!r}: spaCy reads A to Z and _ alone"
    return ""


def _problem_with_word(columns: List[str]) -> str:
    """What is wrong with a word of a .conllu, or nothing."""
    pos, feats, head = columns[POS], columns[FEATS], columns[HEAD]
    if not columns[FORM]:
        return "the word (FORM) is empty"
    if pos not in NO_TAG and pos not in UPOS:
        return f"the part of speech (UPOS) is {pos!r}, not one of UD's"
    if feats not in NO_TAG and not all("=" in feat for feat in feats.split("|")):
        return f"the features (FEATS) are {feats!r}, not Name=Value|..."
    if not (head.isdecimal() or head in NO_TAG):
        return f"the head is {head!r}, not a number"
    return ""
