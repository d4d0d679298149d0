"""The files of a corpus: the ids of its words, written once and memory-mapped."""

import hashlib
import json
import shutil
from array import array
from contextlib import contextmanager
from errno import EFBIG, ENOSPC
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np
from tqdm import tqdm

from ..bilm.characters import words_to_ids
from ..bilm.tuning import CACHED_TOKENS, CACHED_WORDS
from ..errors import CorpusError, Errors
from ..storage import sha256, sync
from ..text.documents import read_documents
from .noise import with_ascii_quotes, with_noise
from .tokenizer import Tokenized, Tokenizer, tokenize
from .vocabulary import EOS_ID, SPECIAL, UNK_ID, Vocabulary, rank_words

VERSION = 5
# The files of a cache.
META, TOKENS, CHARACTERS = "meta.json", "tokens.bin", "characters.bin"
STARTS, SOURCES, WORDS = "starts.npy", "sources.npy", "words.txt"
TARGETS = "targets.npy"
# A longer document is cut after the sentence that reaches this: a row that reads a book
# is long behind the others, which read theirs again meanwhile.
MAX_DOCUMENT_TOKENS = 10_000
CACHE_FILES = {META, TOKENS, CHARACTERS, STARTS, SOURCES, WORDS, TARGETS}


def fingerprint(
    files: Sequence[Path], tokenizer: Tokenizer, vocabulary: Vocabulary, width: int
) -> Dict[str, str]:
    """Digests of what a cache is made of, by name. They do not change when files are
    copied to another folder or machine, where tokenizing them again would take hours.
    """
    made_of = {
        "text": [(file.name, sha256(file)) for file in files],
        "[nlp]": tokenizer.nlp_config,
        # How many processes tokenize makes no difference.
        "[corpus]": tokenizer.settings.model_dump(exclude={"n_process"}),
        "[vocabulary]": vocabulary,
        "max_characters_per_token": width,
        "code": tokenizer.code and sha256(tokenizer.code),
    }
    texts = {k: json.dumps(v, sort_keys=True, default=str) for k, v in made_of.items()}
    return {k: hashlib.sha256(text.encode()).hexdigest() for k, text in texts.items()}


def key_of(cache: Path) -> Dict[str, str]:
    """The fingerprint of a cache that is there whole, by its meta.json; else {}."""
    try:
        made = json.loads((cache / META).read_text())
        is_whole = (made["version"], made["n_bytes"]) == (VERSION, _sizes(cache))
        return dict(made["key"]) if is_whole else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _sizes(cache: Path) -> Dict[str, int]:
    return {n: (cache / n).stat().st_size for n in sorted(CACHE_FILES - {META})}


def write_cache(
    cache: Path,
    files: List[Path],
    tokenizer: Tokenizer,
    key: Dict[str, str],
    weights: Sequence[float],
    vocabulary: Vocabulary,
    width: int,
) -> None:
    """Write a cache, in place of one that may be there. Arguments as of `load_corpus`.

    key (Dict[str, str]): Its fingerprint.
    weights (Sequence[float]): How often each file is read in an epoch.
    RAISES (CorpusError): If there is no text, if a file is damaged, if `cache` has
        other files, or if the disk is full.
    """
    with _replacing(cache) as folder:
        documents = _read_sentences(files, tokenizer)
        made = _write_files(documents, folder, weights, vocabulary, width)
        if not made["counts"]["sentences"]:
            names = ", ".join(map(str, files))
            problem = Errors.E050.format(path=names, problem="it has no words")
            raise CorpusError(problem)
        made.update(key=key, n_bytes=_sizes(folder), version=VERSION)
        (folder / META).write_text(json.dumps(made))
        for name in CACHE_FILES:
            sync(folder / name)


def read_cache(cache: Path, width: int) -> Dict[str, Any]:
    """What `write_cache` has written, by the names that it has in a Corpus."""
    made = json.loads((cache / META).read_text())
    return {
        "tokens": np.memmap(cache / TOKENS, np.int32, "r"),
        "starts": np.load(cache / STARTS),
        "sources": np.load(cache / SOURCES),
        "words": (cache / WORDS).read_bytes().decode("utf8").split("\n")[:-1],
        "characters": np.memmap(cache / CHARACTERS, np.int16, "r").reshape(-1, width),
        "vocab_size": made["vocab_size"],
        "targets": np.load(cache / TARGETS),
        "counts": made["counts"],
    }


@contextmanager
def _replacing(cache: Path) -> Iterator[Path]:
    """A folder for a new cache. Without an error it replaces the old one."""
    for file in cache.glob("*"):
        if file.name not in CACHE_FILES:
            raise CorpusError(Errors.E111.format(path=file))
    cache = cache.resolve()  # a link stays one
    making = cache.with_name(cache.name + ".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        yield making
    except BaseException as e:
        shutil.rmtree(making)
        # NumPy has no number for what was written in part.
        if isinstance(e, OSError) and e.errno in (None, EFBIG, ENOSPC):
            raise CorpusError(Errors.E115.format(path=cache, reason=e)) from None
        raise
    shutil.rmtree(cache, ignore_errors=True)
    making.rename(cache)


def _read_sentences(
    files: List[Path], tokenizer: Tokenizer
) -> Iterator[Tuple[int, Tokenized]]:
    """Each document with the number of its file, as sentences of words."""
    settings = tokenizer.settings
    lang = tokenizer.nlp_config.get("lang", "")
    read = partial(read_documents, tokenized=settings.tokenized, lang=lang)
    texts = ((i, text) for i, file in enumerate(files) for text in read(file))
    quoted = with_ascii_quotes(texts, settings)
    documents = tokenize(quoted, tokenizer, settings.n_process)
    with tqdm(unit=" words", unit_scale=True, disable=None, desc="Corpus") as bar:
        for source, sentences in with_noise(documents, settings):
            bar.update(sum(map(len, sentences)))
            yield source, sentences


def _write_files(
    documents: Iterable[Tuple[int, Tokenized]],
    folder: Path,
    weights: Sequence[float],
    vocabulary: Vocabulary,
    width: int,
) -> Dict[str, Any]:
    """Write the files of a cache. Two passes: words get ids as they turn up, and then
    by rank.

    RETURNS (Dict[str, Any]): What `load_corpus` needs beside them.
    """
    ids, n_read, counts = _write_provisional(documents, folder, weights)
    # Rounded: 0.3 added ten times is slightly less than 3, which min_count may ask for.
    frequency = {w: round(n_read[i], 6) for w, i in ids.items() if i != UNK_ID}
    words, size = rank_words(frequency, vocabulary)
    rank = np.arange(len(ids), dtype=np.int32)
    for r, word in enumerate(words):
        if r >= len(SPECIAL) and word in ids:
            rank[ids[word]] = r
    # Read and written chunk by chunk: pages of memory maps count as this process's.
    provisional = folder / "provisional.bin"
    with provisional.open("rb") as before, (folder / TOKENS).open("wb") as out:
        while len(chunk := np.fromfile(before, np.int32, CACHED_TOKENS)):
            rank[chunk].tofile(out)
    provisional.unlink()
    with (folder / CHARACTERS).open("wb") as out:
        for i in range(0, len(words), CACHED_WORDS):
            words_to_ids(words[i : i + CACHED_WORDS], width).tofile(out)
    (folder / WORDS).write_bytes(("\n".join(words) + "\n").encode("utf8"))
    n_ends = n_read[EOS_ID]
    counts["words"] = sum(n_read) - n_ends
    counts["unknown"] = n_read[UNK_ID] + sum(frequency[w] for w in words[size:])
    # One direction predicts <S>, and the other </S>.
    special = [n_ends / 2, n_ends / 2, counts["unknown"]]
    known = [frequency.get(w, 0.0) for w in words[len(SPECIAL) : size]]
    np.save(folder / TARGETS, np.array(special + known))
    # Without the marks of its ends
    cut = (w for w in frequency if len(w.encode("utf8", "ignore")) > width - 2)
    counts["cut"] = sum(frequency[w] for w in cut)
    return {"vocab_size": size, "counts": counts}


def _write_provisional(
    documents: Iterable[Tuple[int, Tokenized]], folder: Path, weights: Sequence[float]
) -> Tuple[Dict[str, int], Sequence[float], Dict[str, float]]:
    """Write the ids of all words as they turn up, and where documents start. Returns
    the id of each word, how often each is read in an epoch, and counts of the text.
    """
    # Literal special words of the text would break the structure: they are <UNK>.
    ids = {word: UNK_ID for word in SPECIAL}
    n_read = array("d", [0.0] * len(SPECIAL))
    starts, sources = array("q", [0]), array("i")
    counts: Dict[str, float] = {"sentences": 0, "characters": 0}
    with (folder / "provisional.bin").open("wb") as out:
        for source, sentences in documents:
            stream = array("i")
            for k, sentence in enumerate(sentences, 1):
                for word in sentence:
                    i = ids.setdefault(word, len(n_read))
                    if i == len(n_read):
                        n_read.append(0.0)
                    n_read[i] += weights[source]
                    stream.append(i)
                stream.append(EOS_ID)
                n_read[EOS_ID] += weights[source]
                counts["characters"] += sum(map(len, sentence)) + len(sentence)
                if k == len(sentences) or len(stream) >= MAX_DOCUMENT_TOKENS:
                    stream.tofile(out)
                    starts.append(starts[-1] + len(stream))
                    sources.append(source)
                    stream = array("i")
            counts["sentences"] += len(sentences)
    np.save(folder / STARTS, np.asarray(starts, dtype=np.int64))
    np.save(folder / SOURCES, np.asarray(sources, dtype=np.int32))
    return ids, n_read, counts
