"""Annotated sentences -> .spacy files."""

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
from .columns import NO_TAG, prepare_for_converter

# Sentences of a Doc, so that the parser learns where one ends.
N_SENTS = 10
# Without a dev file, one Doc in ten is held out.
DEV_EVERY = 10
N_EXAMPLES = 3
# What the components learn from.
ANNOTATION = {
    "tagger": "tags (XPOS)", "morphologizer": "parts of speech (UPOS)",
    "parser": "heads (HEAD, DEPREL)", "ner": "entities",
}  # fmt: skip

Docs = List[Doc]


def read_treebank(path: Path) -> Docs:
    """Read annotated sentences, ten to a Doc.

    path (Path): A .conllu (a multiword token becomes one token, as it is in the text),
        a .iob with one sentence per line, or a .spacy; a .iob, .conll or any other
        file with one token per line and its tag in the last column; compressed or not.
    RAISES (CorpusError): If the file is damaged, in another format or without
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
        if token := next(filter(_is_in_circle, doc), None):
            words = doc[max(0, token.i - 3) : token.i + 4].text
            raise unusable(path, f"the heads go in a circle at {words!r}")
        _remove_marks(doc)
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
    data = prepare_for_converter(path, data, kind)
    if not data.strip():
        return []
    return CONVERTERS[kind](data, n_sents=N_SENTS, merge_subtokens=True, no_print=True)


def _problem_with_words(docs: Docs) -> str:
    """What is wrong with the words of a treebank, or nothing."""
    words = [[token.text for token in doc] for doc in docs]
    withheld = sum(row.count("_") for row in words)
    if 2 * withheld > sum(map(len, words)):
        return f"{withheld:,} of its words are withheld ('_'). Get the text as well"
    if words and all(row[:2] == ["1", "2"] for row in words):
        return "its words are numbers: the first column must have the words"
    return ""


def _remove_marks(doc: Doc) -> None:
    """Leave what has no tag or no head without one."""
    for token in doc:
        # A multiword token has those of its words: ADP_-, ___
        tags = set(token.tag_.split("_"))
        if "-" in tags or tags == {""}:
            token.tag_ = ""
        if token.dep_ in NO_TAG:
            token.dep_ = ""  # to spaCy, its head is missing then


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


def write_split(
    path: Path, docs: Docs, dev: Optional[Docs], folder: Path, name: str
) -> int:
    """Write train/NAME.spacy and dev/NAME.spacy. Without `dev`, a tenth of the Docs is
    held out.

    path (Path): Where the Docs are from.
    RETURNS (int): The number of tokens in dev.
    RAISES (CorpusError): If there are too few Docs for that.
    """
    if dev is None:
        dev = docs[DEV_EVERY - 1 :: DEV_EVERY]
        docs = [doc for i, doc in enumerate(docs) if i % DEV_EVERY != DEV_EVERY - 1]
        if not dev:
            n = {"n": len(docs), "every": DEV_EVERY, "n_sents": N_SENTS}
            raise CorpusError(Errors.E132.format(path=path, **n))
    for part, mine in (("train", docs), ("dev", dev)):
        target = folder / part / f"{name}.spacy"
        target.parent.mkdir(parents=True, exist_ok=True)
        DocBin(docs=mine).to_disk(target)
    return sum(map(len, dev))
