"""Sentences of words -> the files of a memory-mapped corpus."""

import hashlib
import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import (
    Any,
    BinaryIO,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np
import numpy.typing as npt

from ..bilm.characters import words_to_ids
from ..errors import CorpusError, Errors
from .config import CorpusSettings
from .tokenizer import Sentences
from .vocabulary import EOS_ID, SPECIAL, UNK_ID, rank_words, vocabulary_size

Ints = npt.NDArray[Any]

VERSION = 1
# Tokens that are in memory at a time while the ids are rewritten, and words whose
# characters are.
CHUNK_TOKENS = 1 << 22
CHUNK_WORDS = 1 << 16


class Recipe(NamedTuple):
    """What a cache is made by, beside the text.

    nlp (Dict[str, Any]): [nlp] of the config, which names the tokenizer.
    settings (CorpusSettings): [corpus] of the config.
    vocabulary (List[str]): A given vocabulary; None makes one from the text.
    min_count, max_size (int): Of a vocabulary that is made from the text.
    max_characters (int): The fixed width of a word in characters.
    """

    nlp: Dict[str, Any]
    settings: CorpusSettings
    vocabulary: Optional[List[str]] = None
    min_count: int = 1
    max_size: int = 2**31
    max_characters: int = 50


class _Counts(NamedTuple):
    """What the first pass over the text finds out. `words` gives each word the id
    under which it turned up, to which `of_id` and the provisional file refer.
    """

    words: Dict[str, int]
    of_id: Sequence[int]
    starts: Sequence[int]
    n_characters: int
    n_sentences: int


def fingerprint(files: List[Path], recipe: Recipe) -> str:
    """Changes when a file or the recipe does."""
    stats = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    # How many processes tokenize makes no difference.
    recipe = recipe._replace(settings=replace(recipe.settings, n_process=1))
    key = repr((VERSION, stats, tuple(recipe)))
    return hashlib.sha256(key.encode("utf8")).hexdigest()


def make_cache(
    documents: Iterable[Sentences], folder: Path, key: str, path: str, recipe: Recipe
) -> None:
    """Write a cache. Two passes: words get ids as they turn up, and then by rank.

    documents (Iterable[List[List[str]]]): Sentences of words.
    folder (Path): The cache.
    key (str): Its fingerprint.
    path (str): What errors call the text.
    recipe (Recipe): What it is made by.
    """
    provisional = folder / "provisional.bin"
    counts = _write_provisional(documents, provisional)
    n_tokens = counts.starts[-1]
    if n_tokens == 0:
        raise CorpusError(Errors.E050.format(path=path))
    frequency = {word: counts.of_id[i] for word, i in counts.words.items()}
    words = rank_words(frequency, recipe.vocabulary)
    if recipe.vocabulary is not None:
        size = len(recipe.vocabulary)
    else:
        size = vocabulary_size(words, frequency, recipe.min_count, recipe.max_size)
    rank = np.arange(len(counts.of_id), dtype=np.int32)
    for r, word in enumerate(words):
        if r >= len(SPECIAL) and word in counts.words:
            rank[counts.words[word]] = r
    _write_tokens(folder / "tokens.npy", provisional, rank, n_tokens)
    _write_characters(folder / "characters.npy", words, recipe.max_characters)
    np.save(folder / "starts.npy", np.asarray(counts.starts, dtype=np.int64))
    (folder / "words.txt").write_bytes(("\n".join(words) + "\n").encode("utf8"))
    meta = {
        "key": key,
        "vocab_size": size,
        "n_characters": counts.n_characters,
        "n_sentences": counts.n_sentences,
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def _write_provisional(documents: Iterable[Sentences], path: Path) -> _Counts:
    """Write the ids of all words as they turn up, and count them."""
    # Literal special words of the text would break the structure: they are <UNK>.
    ids = {word: UNK_ID for word in SPECIAL}
    counts, starts = array("q", [0] * len(SPECIAL)), array("q", [0])
    n_characters = n_sentences = 0
    with path.open("wb") as out:
        for sentences in documents:
            stream = array("i")
            for sentence in sentences:
                for word in sentence:
                    i = ids.setdefault(word, len(counts))
                    if i == len(counts):
                        counts.append(0)
                    counts[i] += 1
                    stream.append(i)
                    n_characters += len(word) + 1
                stream.append(EOS_ID)
                n_sentences += 1
            if stream:
                stream.tofile(out)
                starts.append(starts[-1] + len(stream))
    return _Counts(ids, counts, starts, n_characters, n_sentences)


def _write_tokens(path: Path, provisional: Path, rank: Ints, n_tokens: int) -> None:
    # Read and written chunk by chunk: pages of memory maps count as this process's.
    with provisional.open("rb") as before, path.open("wb") as out:
        _write_header(out, np.int32, (n_tokens,))
        while len(ids := np.fromfile(before, np.int32, CHUNK_TOKENS)):
            rank[ids].tofile(out)
    provisional.unlink()


def _write_characters(path: Path, words: List[str], max_characters: int) -> None:
    with path.open("wb") as out:
        _write_header(out, np.int16, (len(words), max_characters))
        for i in range(0, len(words), CHUNK_WORDS):
            part = words_to_ids(words[i : i + CHUNK_WORDS], max_characters)
            part.astype(np.int16).tofile(out)


def _write_header(out: BinaryIO, dtype: npt.DTypeLike, shape: Tuple[int, ...]) -> None:
    """The beginning of a .npy file of that dtype and shape."""
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
