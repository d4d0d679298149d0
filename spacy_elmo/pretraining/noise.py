"""Noise as in real text, added to some documents of a corpus, the same in each run."""

import random
from typing import Any, Iterable, Iterator, Tuple
from unicodedata import category

from spacy.tokens import Doc

from .config import CorpusSettings
from .tokenizer import Tokenized

# Typographic quotes -> the ASCII ones that treebanks and most web text use.
_ASCII_QUOTES = str.maketrans("\u2018\u2019\u201a\u201c\u201d\u201e", "'''\"\"\"")
# What hashtags and names of users begin with: both are left as they are.
_MARKS = "#@"


def with_ascii_quotes(
    documents: Iterable[Tuple[int, Any]], settings: CorpusSettings
) -> Iterator[Tuple[int, Any]]:
    """Documents as they are read, some with ASCII quotes."""
    chosen = _draw("ascii_quotes", settings.ascii_quotes)
    for (source, document), is_chosen in zip(documents, chosen):
        yield source, _replace_quotes(document) if is_chosen else document


def with_noise(
    documents: Iterable[Tuple[int, Tokenized]], settings: CorpusSettings
) -> Iterator[Tuple[int, Tokenized]]:
    """Tokenized documents, some in lower case and some without punctuation: their
    sentences are still those of the text.
    """
    lower = _draw("lower_case", settings.lower_case)
    bare = _draw("no_punctuation", settings.no_punctuation)
    for (source, sentences), is_lower, is_bare in zip(documents, lower, bare):
        if is_lower:
            sentences = [
                [w if w[0] in _MARKS else w.lower() for w in s] for s in sentences
            ]
        if is_bare:
            sentences = [[w for w in s if not _is_punctuation(w)] for s in sentences]
        yield source, [sentence for sentence in sentences if sentence]


def _draw(name: str, share: float) -> Iterator[bool]:
    rng = random.Random(name)
    while True:
        yield rng.random() < share


def _replace_quotes(document: Any) -> Any:
    if isinstance(document, list):
        return [_replace_quotes(part) for part in document]
    if isinstance(document, str):
        return document.translate(_ASCII_QUOTES)
    words = [token.text.translate(_ASCII_QUOTES) for token in document]
    spaces = [bool(token.whitespace_) for token in document]
    starts = [token.is_sent_start for token in document]
    return Doc(document.vocab, words=words, spaces=spaces, sent_starts=starts)


def _is_punctuation(word: str) -> bool:
    return all(category(char)[0] == "P" for char in word)
