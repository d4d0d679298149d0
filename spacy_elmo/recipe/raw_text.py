"""Raw text -> the two files that a biLM is trained and measured on."""

from collections import Counter
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Set, Tuple

from ..errors import CorpusError, Errors
from ..storage import replacing
from ..text import find_texts, read_documents

TEXT, HELDOUT = "text.txt", "heldout.txt"
# Fewer words make no rows to train on.
MIN_WORDS = 20_000
# One piece of so many is held out; a piece is a document, or so many words of one.
HELDOUT_EVERY = 50
PIECE_WORDS = 500
# Shorter paragraphs may come again: "Yes.", "Chapter 1".
REPEATED_WORDS = 5


class Survey(NamedTuple):
    """What a text has. Words stand between blanks.

    words, pieces (int): For training.
    heldout (int): Words that are held out.
    repeated (int): Paragraphs that were there before, and are left out.
    lengths (Counter[int]): How many words have so many bytes of UTF-8.
    """

    words: int
    pieces: int
    heldout: int
    repeated: int
    lengths: Counter[int]

    def share_cut(self, window: int) -> float:
        """Share of the words that a window of so many characters cuts. Two of them
        mark where a word begins and ends.
        """
        cut = sum(n for n_bytes, n in self.lengths.items() if n_bytes > window - 2)
        return cut / (self.words + self.heldout)


def split_text(text: str, folder: Path) -> Survey:
    """Check a text and divide it, in one pass.

    text (str): A file, a directory or a glob: see `text.find_texts`.
    folder (Path): Receives text.txt and heldout.txt.
    RETURNS (Survey): What was found.
    RAISES (CorpusError): If there is no text, if it is not UTF-8, or too little.
    """
    lengths: Counter[int] = Counter()
    n_words = [0, 0]
    pieces = repeated = 0
    with (
        replacing(folder / TEXT) as text_path,
        replacing(folder / HELDOUT) as heldout_path,
        text_path.open("w", encoding="utf8") as train,
        heldout_path.open("w", encoding="utf8") as heldout,
    ):
        for i, (piece, n_repeated) in enumerate(_pieces(text)):
            is_heldout = i % HELDOUT_EVERY == HELDOUT_EVERY // 2
            (heldout if is_heldout else train).write("\n".join(piece) + "\n\n")
            words = " ".join(piece).split()
            lengths.update(len(word.encode("utf8")) for word in words)
            n_words[is_heldout] += len(words)
            pieces += not is_heldout
            repeated += n_repeated
        if sum(n_words) < MIN_WORDS:
            found = sum(n_words)
            problem = Errors.E130.format(path=text, found=found, wanted=MIN_WORDS)
            raise CorpusError(problem)
    return Survey(n_words[0], pieces, n_words[1], repeated, lengths)


def _pieces(text: str) -> Iterator[Tuple[List[str], int]]:
    """Paragraphs of a document or of a part of it, and how many were left out."""
    seen: Set[int] = set()
    for file in find_texts(text):
        for document in read_documents(file, strict=True):
            piece: List[str] = []
            n_words = repeated = 0
            for words in _paragraphs(document):
                paragraph = " ".join(words)
                key = hash(paragraph)  # takes less memory
                if len(words) >= REPEATED_WORDS and key in seen:
                    repeated += 1
                    continue
                seen.add(key)
                piece.append(paragraph)
                n_words += len(words)
                if n_words >= PIECE_WORDS:
                    yield piece, repeated
                    piece, n_words, repeated = [], 0, 0
            if piece or repeated:
                yield piece, repeated


def _paragraphs(document: Any) -> Iterator[List[str]]:
    """The words of each paragraph; a long one in parts."""
    parts = document if isinstance(document, list) else document.text.splitlines()
    for part in parts:
        words = part.split() if isinstance(part, str) else part
        for i in range(0, len(words), PIECE_WORDS):
            yield words[i : i + PIECE_WORDS]
