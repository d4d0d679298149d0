"""Raw text -> one file to train a biLM on, and one to evaluate it on."""

import re
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Set, Tuple, Union

from spacy.tokens import Doc
from spacy.training.batchers import minibatch_by_words

from ..errors import CorpusError, Errors, unusable
from ..segmenters import segment_sentences
from ..storage import replacing
from ..text.documents import read_documents
from ..text.files import TEXT, find_texts

HELDOUT = "heldout.txt"
# Fewer words are not enough for the rows of a batch.
MIN_WORDS = 20_000
# One in 50 pieces is held out, until there is enough to evaluate on. A piece is a
# document, or some 500 words of it.
HELDOUT_EVERY, MAX_HELDOUT = 50, 200_000
PIECE_WORDS = 500
# Words that are longer on average, in bytes of UTF-8, stand without spaces.
MAX_MEAN_LENGTH = 40
# Shorter paragraphs may be repeated: "Yes.", "Chapter 1".
REPEATED_WORDS = 5
COLUMNS = "has columns between tabs. If it is a treebank, give it as --treebank"
NUMBERED = re.compile(r"\d+\t[^\t]*")
NUMBERS = "numbers its lines. Give their text alone, for instance by cut -f 2"

Words = Tuple[str, ...]


class Survey(NamedTuple):
    """What a text has. Words are split at white space.

    words, pieces (int): For training.
    heldout (int): Held-out words.
    repeated (int): Repeated paragraphs, which are left out.
    lengths (Counter[int]): Bytes of UTF-8 -> number of words of this length.
    """

    words: int
    pieces: int
    heldout: int
    repeated: int
    lengths: Counter[int]

    def share_cut(self, max_characters: int) -> float:
        """Share of the words that an encoder of this width cuts. Two of the
        characters mark where a word begins and ends.
        """
        longest = max_characters - 2
        cut = sum(n for n_bytes, n in self.lengths.items() if n_bytes > longest)
        return cut / (self.words + self.heldout)


def split_text(
    text: str, folder: Path, tokenized: bool = False, lang: str = ""
) -> Survey:
    """Check a text and divide it, in one pass.

    text (str): A file, a directory or a glob: see `text.files.find_texts`.
    folder (Path): Receives text.txt and heldout.txt.
    tokenized (bool): Whether a Doc is taken as its sentences of tokens; else as its
        text.
    lang (str): The language, by which sentences may end.
    RETURNS (Survey): What was found.
    RAISES (CorpusError): If there is no text, if it is not UTF-8, too little, or has no
        spaces between its words.
    """
    lengths: Counter[int] = Counter()
    seen: Set[int] = set()  # hashes take less memory than paragraphs
    n_words, n_pieces = [0, 0], [0, 0]
    repeated = 0
    with (
        replacing(folder / TEXT) as text_path,
        replacing(folder / HELDOUT) as heldout_path,
        text_path.open("w", encoding="utf8") as train,
        heldout_path.open("w", encoding="utf8") as heldout,
    ):
        for piece in _pieces(text, tokenized, lang):
            new: List[Words] = []
            for words in piece:
                if len(words) < REPEATED_WORDS or hash(words) not in seen:
                    new.append(words)
                seen.add(hash(words))
            repeated += len(piece) - len(new)
            if not new:
                continue
            is_heldout = sum(n_pieces) % HELDOUT_EVERY == HELDOUT_EVERY // 2
            is_heldout = is_heldout and n_words[True] < MAX_HELDOUT
            file = heldout if is_heldout else train
            file.write("".join(" ".join(words) + "\n" for words in new) + "\n")
            lengths.update(len(word.encode("utf8")) for words in new for word in words)
            n_words[is_heldout] += sum(map(len, new))
            n_pieces[is_heldout] += 1
        found = sum(n_words)
        length = sum(n_bytes * n for n_bytes, n in lengths.items()) / max(1, found)
        if length > MAX_MEAN_LENGTH:
            raise CorpusError(Errors.E140.format(path=text, length=length))
        if found < MIN_WORDS:
            problem = Errors.E130.format(path=text, found=found, wanted=MIN_WORDS)
            raise CorpusError(problem)
    return Survey(n_words[0], n_pieces[0], n_words[1], repeated, lengths)


def _pieces(text: str, tokenized: bool, lang: str) -> Iterator[List[Words]]:
    """Paragraphs of each document, or of each part of a long one."""
    for file in find_texts(text):
        documents = read_documents(file, strict=True, tokenized=tokenized, lang=lang)
        for i, document in enumerate(documents):
            if i == 0 and (problem := _problem_with_lines(document)):
                raise unusable(file, problem)
            if isinstance(document, Doc):
                document = _parts_of(document, tokenized)
            if tokenized and (word := _word_with_space(document)):
                raise unusable(file, f"the word {word!r} has a space in it")
            yield from minibatch_by_words(_paragraphs(document), PIECE_WORDS)


def _problem_with_lines(document: Union[List[Any], Doc]) -> str:
    """What is wrong with the lines of a document, or nothing: it may be a sentence of
    a treebank, a word and its tags a line, or be of a corpus of numbered sentences.
    """
    lines = [x for x in document if isinstance(x, str) and not x.startswith("#")]
    if lines and all(line.count("\t") > 1 for line in lines):
        return COLUMNS
    return NUMBERS if lines and all(map(NUMBERED.fullmatch, lines)) else ""


def _word_with_space(document: List[Any]) -> str:
    """A word that would be two in the text file, or nothing."""
    words = chain(*(part for part in document if not isinstance(part, str)))
    return next((word for word in words if len(word.split()) > 1), "")


def _parts_of(doc: Doc, tokenized: bool) -> List[Any]:
    if not tokenized:
        return doc.text.splitlines()
    return [
        [token.text for token in sentence if not token.is_space]
        for sentence in segment_sentences()(doc)
    ]


def _paragraphs(document: List[Any]) -> Iterator[Words]:
    """The words of each paragraph; long ones in parts."""
    for part in document:
        words = tuple(part.split() if isinstance(part, str) else part)
        for i in range(0, len(words), PIECE_WORDS):
            yield words[i : i + PIECE_WORDS]
