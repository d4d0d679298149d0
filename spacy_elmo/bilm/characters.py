from typing import Dict, Iterable, List, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from ..errors import Errors

# Ids above the 256 byte values (bilm-tf, data.py; AllenNLP, elmo_indexer.py).
BEGIN_SENTENCE = 256
END_SENTENCE = 257
BEGIN_WORD = 258
END_WORD = 259
PADDING = 260

# The boundaries of a sentence: the words, and their rows in a table of token vectors.
# `make_batches` (batching.py) adds them in prediction. For training and scores, text
# comes closed by `</S>`, and `directions` (windows.py) adds `<S>`.
BOS, EOS = "<S>", "</S>"
BOS_ROW, EOS_ROW = 0, 1

_BOUNDARIES = {BOS: [BEGIN_SENTENCE], EOS: [END_SENTENCE]}

CharIds = npt.NDArray[np.int16]


def words_to_ids(words: Sequence[str], max_characters: int = 50) -> CharIds:
    """The characters of words as the token encoder reads them: the bytes of their
    UTF-8 between marks of the beginning and the end, padded. A long word is cut at
    `max_characters - 2` bytes, maybe inside a character; what UTF-8 cannot encode
    (a lone surrogate) is left out. The words `<S>` and `</S>` are the boundaries.

    words (Sequence[str]): n words.
    max_characters (int): The fixed width of a word in characters.
    RETURNS (Ints2d): Ids 0..260, shape (n, max_characters).
    """
    ids = np.full((len(words), max_characters), PADDING, dtype=np.int16)
    ids[:, 0] = BEGIN_WORD
    for row, word in zip(ids, words):
        utf8 = word.encode("utf8", "ignore")[: max_characters - 2]
        inner = _BOUNDARIES.get(word, list(utf8))
        row[1 : len(inner) + 1] = inner
        row[len(inner) + 1] = END_WORD
    return ids


def word_key(word: str, max_characters: int) -> Union[str, bytes]:
    """A key for what `words_to_ids` reads of a word: of a long one, only that."""
    if len(word) < max_characters or word in _BOUNDARIES:
        return word
    return word.encode("utf8", "ignore")[: max_characters - 2]


def number_words(texts: Sequence[Sequence[str]]) -> Tuple[List[str], List[List[int]]]:
    """The distinct words of sentences, after `<S>` and `</S>`, and each sentence as
    rows of a table of their vectors.
    """
    rows: Dict[str, int] = {BOS: BOS_ROW, EOS: EOS_ROW}
    ids = [[rows.setdefault(word, len(rows)) for word in text] for text in texts]
    return list(rows), ids


def as_words(sentences: Iterable[Iterable[str]]) -> List[List[str]]:
    """Sentences as lists of words.

    RAISES (ValueError): If a sentence is a string, or has anything but strings.
    """
    found = []
    for i, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueError(Errors.E022.format(i=i, found="a string"))
        found.append(list(sentence))
        for word in found[-1]:
            if not isinstance(word, str):
                problem = f"of words that are a {type(word).__name__}"
                raise ValueError(Errors.E022.format(i=i, found=problem))
    return found
