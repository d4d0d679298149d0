"""Text as memory-mapped word ids, made once and reused."""

import hashlib
import json
import mmap
import shutil
from array import array
from pathlib import Path
from typing import (
    Any,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Sequence,
    Tuple,
)

import numpy as np
from tqdm import tqdm
from wasabi import msg

from ..bilm.characters import words_to_ids
from ..bilm.paths import CHECKPOINT
from ..bilm.tuning import CACHED_TOKENS, CACHED_WORDS
from ..errors import (
    CorpusError,
    Errors,
    TrainingError,
    Warnings,
    require_same,
    unusable,
)
from ..storage import sha256
from ..text import find_texts, read_documents
from .config import Settings
from .loggers import LOG
from .noise import with_ascii_quotes, with_noise
from .tokenizer import Tokenized, Tokenizer, tokenize
from .vocabulary import (
    BOS_ID,
    EOS_ID,
    SPECIAL,
    UNK_ID,
    VOCABULARY,
    Floats1d,
    Ints,
    Vocabulary,
    rank_words,
    read_vocabulary,
)

VERSION = 4
# What a run that diverged leaves of its last batch.
BATCH = "batch-{}.txt"
# The files of a cache.
META, TOKENS, CHARACTERS = "meta.json", "tokens.bin", "characters.bin"
STARTS, SOURCES, WORDS = "starts.npy", "sources.npy", "words.txt"
CACHE_FILES = {META, TOKENS, CHARACTERS, STARTS, SOURCES, WORDS}


class TextCounts(NamedTuple):
    """What a text has. Words count as often as they are read in an epoch."""

    sentences: int
    characters: int  # of the words, and one blank after each
    words: float
    unknown: float  # words outside the vocabulary
    cut: float  # words longer than the encoder reads


class Corpus(NamedTuple):
    """Word ids on disk. Sentences follow one another, each closed by </S>;
    <S> is left out. Ids rank all words of the corpus: those below `vocab_size` are
    in the softmax's vocabulary, the others are its <UNK> but keep their characters.
    """

    tokens: Ints  # word ids, int32, memory-mapped
    starts: Ints  # of the documents, and the end: (n_documents + 1,)
    sources: Ints  # the number of the file of each document, (n_documents,)
    weights: List[float]  # how often each file is read in an epoch
    words: List[str]  # the word of each id
    characters: Ints  # ids, (n_words, max_characters), memory-mapped
    vocab_size: int  # words that the softmax predicts
    counts: TextCounts

    @property
    def n_documents(self) -> int:
        return len(self.starts) - 1

    @property
    def tokens_per_epoch(self) -> float:
        return float(np.asarray(self.weights)[self.sources] @ np.diff(self.starts))

    @property
    def documents_per_epoch(self) -> int:
        """At least: an epoch may have one more of a file."""
        n = np.bincount(self.sources, minlength=len(self.weights))
        return sum(int(round(w * k, 6)) for w, k in zip(self.weights, n))

    def epoch(self, i: int, seed: int) -> Ints:
        """The documents that are read in epoch i, in the order of reading. Those of a
        file have a fixed order, in which each epoch continues where the one before
        stopped: with a weight of 0.3, ten epochs read each document three times.
        """
        parts = []
        for source, weight in enumerate(self.weights):
            documents = np.flatnonzero(self.sources == source)
            order = np.random.default_rng([seed, source, 1]).permutation(documents)
            n = len(order)
            first, last = (round(k * weight * n) for k in (i, i + 1))
            parts.append(order[np.arange(first, last) % n])
        rng = np.random.default_rng([seed, i])
        return rng.permutation(np.sort(np.concatenate(parts)))

    def shares(self, seed: int) -> Floats1d:
        """The share of each word of the vocabulary among what is predicted in the first
        epoch, (vocab_size,). Each direction predicts one of <S> and </S>.
        """
        n = np.full(self.vocab_size, 0.5)  # also of a word that is not there
        for i in self.epoch(0, seed):
            np.add.at(n, self.in_vocabulary(self.document(i)), 1.0)
        n[[BOS_ID, EOS_ID]] = n[EOS_ID] / 2
        return n / n.sum()

    def document(self, i: int) -> Ints:
        """The word ids of a document, in memory."""
        ids = np.array(self.tokens[self.starts[i] : self.starts[i + 1]])
        # Else every page read so far would count as this process's memory.
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            pages: Any = self.tokens.base
            pages.madvise(mmap.MADV_DONTNEED)
        return ids

    def in_vocabulary(self, ids: Ints) -> Ints:
        """Word ids as the softmax predicts them."""
        return np.where(ids < self.vocab_size, ids, UNK_ID)


def load_corpora(settings: Settings, output: Path) -> Tuple[Corpus, Dict[str, Corpus]]:
    """The training text, and each held-out file by the same vocabulary.

    output (Path): The caches are in its folder `corpus`.
    RETURNS (Tuple[Corpus, Dict[str, Corpus]]): Training text, and held-out text by
        the names of its files.
    """
    folder, vocabulary = output / "corpus", settings.vocabulary
    tokenizer = Tokenizer(settings.nlp, settings.corpus, settings.code)
    width = settings.options.char_cnn.max_characters_per_token
    wanted = read_vocabulary(vocabulary.path) if vocabulary.path else vocabulary
    own = {output / VOCABULARY, output / LOG, *folder.rglob(WORDS)}
    own.update(output.glob(BATCH.format("*")))
    # If the output is in the folder of the text, its files are no text.
    files = text_files(settings.paths.train, {file.resolve() for file in own})
    _warn_of_shared_files(files, text_files(settings.paths.dev))
    resumes = (output / CHECKPOINT).is_file()
    train = load_corpus(files, folder / "train", tokenizer, wanted, width, resumes)
    tokenizer = Tokenizer(settings.nlp, settings.corpus.as_it_stands(), settings.code)
    words = train.words[: train.vocab_size]
    return train, load_each(settings.paths.dev, folder / "dev", tokenizer, words, width)


def _warn_of_shared_files(train: List[Path], dev: List[Path]) -> None:
    read = {file.resolve() for file in train}
    for file in dev:
        if file.resolve() in read:
            msg.warn(Warnings.W012.format(path=file))


def load_each(
    paths: Sequence[str],
    folder: Path,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    width: int,
) -> Dict[str, Corpus]:
    """Each file as a corpus of its own, by its name."""
    files = text_files(paths)
    names = [file.name for file in files]
    return {
        name if names.count(name) == 1 else str(file): load_corpus(
            [file], folder / str(i), tokenizer, vocabulary, width
        )
        for i, (name, file) in enumerate(zip(names, files))
    }


def text_files(paths: Sequence[str], without: Collection[Path] = ()) -> List[Path]:
    """The files of several paths (see `find_texts`), each once."""
    found = [file for path in paths for file in find_texts(path, without)]
    return list({file.resolve(): file for file in found}.values())


def load_corpus(
    files: List[Path],
    cache: Path,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    width: int,
    resumes: bool = False,
) -> Corpus:
    """Open the cache of a corpus, and make it first unless it is there for the same
    text and arguments.

    files (List[Path]): Text that `text_files` found.
    cache (Path): Directory of the cache. One process at a time may make it.
    tokenizer (Tokenizer): Its settings choose the documents, too.
    vocabulary (List[str] or VocabularySettings): The words that the softmax predicts,
        or how to choose them from the text.
    width (int): Characters that the encoder reads of a word, with the marks of its
        ends.
    resumes (bool): Whether a cache of another text is an error. Else it is replaced.
    RAISES (CorpusError): If there is no text, if a file is damaged, if a weight is
        for no file, or if `cache` has other files.
    RAISES (TrainingError): If the cache is of another run.
    """
    weights = weights_of(files, tokenizer.settings.weights)
    key = fingerprint(files, tokenizer, vocabulary, width)
    found = _key_of(cache)
    if resumes and found:
        require_same(cache, found, key, TrainingError)
    if found != key:
        for file in cache.glob("*"):
            if file.name not in CACHE_FILES:
                raise CorpusError(Errors.E111.format(path=file))
        making = cache.with_name(cache.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        try:
            documents = _read_sentences(files, tokenizer)
            made = _write_cache(documents, making, weights, vocabulary, width)
            if not made["counts"]["sentences"]:
                names = ", ".join(map(str, files))
                raise CorpusError(Errors.E050.format(path=f"{names}: it has no words"))
        except BaseException:
            shutil.rmtree(making)
            raise
        n_bytes = (making / TOKENS).stat().st_size
        made.update(key=key, n_bytes=n_bytes, version=VERSION)
        (making / META).write_text(json.dumps(made))
        shutil.rmtree(cache, ignore_errors=True)
        making.rename(cache)
    made = json.loads((cache / META).read_text())
    characters = np.memmap(cache / CHARACTERS, np.int16, "r")
    return Corpus(
        tokens=np.memmap(cache / TOKENS, np.int32, "r"),
        starts=np.load(cache / STARTS),
        sources=np.load(cache / SOURCES),
        weights=weights,
        words=(cache / WORDS).read_bytes().decode("utf8").split("\n")[:-1],
        characters=characters.reshape(-1, width),
        vocab_size=made["vocab_size"],
        counts=TextCounts(**made["counts"]),
    )


def _key_of(cache: Path) -> Dict[str, str]:
    """The fingerprint of a cache that is there whole, by its meta.json; else {}."""
    try:
        made = json.loads((cache / META).read_text())
        n_bytes = (cache / TOKENS).stat().st_size
        is_whole = (made["version"], made["n_bytes"]) == (VERSION, n_bytes)
        return dict(made["key"]) if is_whole else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def weights_of(files: Sequence[Path], patterns: Dict[str, float]) -> List[float]:
    """How often each file is read in an epoch, by the first pattern that matches its
    name with or without its suffixes.

    RAISES (CorpusError): If a pattern matches no file.
    """
    weights, unused = [], set(patterns)
    for file in files:
        matching = [p for p in patterns if file.match(p) or file.match(f"{p}.*")]
        unused -= set(matching)
        weights.append(patterns[matching[0]] if matching else 1.0)
    if unused:
        problem = f"matches none of the files of paths.train, such as {files[0].name}"
        raise unusable(f"[corpus.weights] {min(unused)}", problem)
    return weights


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


def _read_sentences(
    files: List[Path], tokenizer: Tokenizer
) -> Iterator[Tuple[int, Tokenized]]:
    """Each document with the number of its file, as sentences of words."""
    settings = tokenizer.settings
    texts = ((i, text) for i, file in enumerate(files) for text in read_documents(file))
    quoted = with_ascii_quotes(texts, settings)
    documents = tokenize(quoted, tokenizer, settings.n_process)
    with tqdm(unit=" words", unit_scale=True, disable=None, desc="Corpus") as bar:
        for source, sentences in with_noise(documents, settings):
            bar.update(sum(map(len, sentences)))
            yield source, sentences


def _write_cache(
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
    counts["words"] = sum(n_read)
    counts["unknown"] = n_read[UNK_ID] + sum(frequency[w] for w in words[size:])
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
            for sentence in sentences:
                for word in sentence:
                    i = ids.setdefault(word, len(n_read))
                    if i == len(n_read):
                        n_read.append(0.0)
                    n_read[i] += weights[source]
                    stream.append(i)
                stream.append(EOS_ID)
                counts["characters"] += sum(map(len, sentence)) + len(sentence)
            counts["sentences"] += len(sentences)
            if stream:
                stream.tofile(out)
                starts.append(starts[-1] + len(stream))
                sources.append(source)
    np.save(folder / STARTS, np.asarray(starts, dtype=np.int64))
    np.save(folder / SOURCES, np.asarray(sources, dtype=np.int32))
    return ids, n_read, counts
