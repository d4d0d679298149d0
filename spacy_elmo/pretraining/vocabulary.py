from collections import Counter
from pathlib import Path
from typing import Any, List, Mapping, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from ..bilm.characters import BOS, BOS_ROW, EOS, EOS_ROW
from ..errors import unusable
from ..storage import replacing
from .config import VocabularySettings

UNK = "<UNK>"
SPECIAL = (BOS, EOS, UNK)
BOS_ID, EOS_ID, UNK_ID = BOS_ROW, EOS_ROW, 2
Ints = npt.NDArray[Any]  # word ids
Floats1d = npt.NDArray[np.float64]
VOCABULARY = "vocab.txt"
# The words that the softmax predicts, or how to choose them from the text.
Vocabulary = List[str] | VocabularySettings
# bilm-tf's own files end in this line and tell its readers to skip it.
END_OF_FILE = "!!!MAXTERMID"


def rank_words(
    counts: Mapping[str, float], vocabulary: Vocabulary
) -> Tuple[List[str], int]:
    """Every word of a corpus, in the order of the softmax: the special words, then
    by falling frequency, as the log-uniform sampler needs it. A given vocabulary stands
    in front, as it is.

    counts (Mapping[str, float]): How often each word is read.
    RETURNS (Tuple[List[str], int]): The words, and how many of them the softmax
        predicts; the others are <UNK>.
    """
    given = vocabulary if isinstance(vocabulary, list) else list(SPECIAL)
    known = {*SPECIAL, *given}
    rest = [word for word in counts if word not in known]
    # Equal counts in alphabetical order: the same corpus gives the same file.
    rest.sort(key=lambda word: (-counts[word], word))
    size = len(given)
    if not isinstance(vocabulary, list):
        frequent = [word for word in rest if counts[word] >= vocabulary.min_count]
        size = min(size + len(frequent), vocabulary.max_size)
    return given + rest, size


def read_vocabulary(path: Union[str, Path]) -> List[str]:
    """Read and check a vocabulary file, one word per line.

    RAISES (CorpusError): If the special words are not its first three lines, if a
        word stands there twice, or if a line is empty.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf8")
    except (OSError, UnicodeDecodeError) as e:
        raise unusable(path, f"is not a readable vocabulary ({e})") from None
    words = text.removesuffix("\n").removesuffix(f"\n{END_OF_FILE}").split("\n")
    if tuple(words[:3]) != SPECIAL:
        found = ", ".join(map(repr, words[:3]))
        raise unusable(path, f"must begin with {', '.join(SPECIAL)}, not {found}")
    if "" in words:
        raise unusable(path, f"line {words.index('') + 1} is empty")
    twice = [word for word, n in Counter(words).items() if n > 1]
    if twice:
        raise unusable(path, f"has words twice: {', '.join(map(repr, twice[:5]))}")
    return words


def write_vocabulary(path: Path, words: Sequence[str]) -> None:
    """Write a vocabulary, one word per line."""
    with replacing(path) as temporary:
        temporary.write_text("\n".join(words) + "\n", encoding="utf8")
