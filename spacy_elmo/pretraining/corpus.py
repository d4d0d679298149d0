"""Text as memory-mapped word ids, made once and reused."""

import mmap
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from wasabi import msg

from ..bilm.paths import CHECKPOINT, WEIGHTS_FILE
from ..errors import TrainingError, Warnings, require_same, unusable
from ..text.documents import RULES
from ..text.files import find_texts
from .config import Settings
from .corpus_files import fingerprint, key_of, read_cache, write_cache
from .tokenizer import Tokenizer
from .vocabulary import UNK_ID, Floats1d, Ints, Vocabulary, read_vocabulary

# In the folder of a run
CACHES = Path("corpus")
TRAIN_CACHE, DEV_CACHES = CACHES / "train", CACHES / "dev"
# What a run that diverged leaves of its last batch.
BATCH = "batch-{}.txt"


class TextCounts(NamedTuple):
    """What a text has. Words count as often as they are read in an epoch."""

    sentences: int
    characters: int  # of the words, and one space after each
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
    targets: Floats1d  # how often it predicts each in an epoch, (vocab_size,)
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
        # Files are read in order: sources ascend.
        ends = np.searchsorted(self.sources, np.arange(len(self.weights) + 1))
        for source, weight in enumerate(self.weights):
            documents = np.arange(ends[source], ends[source + 1])
            order = np.random.default_rng([seed, source, 1]).permutation(documents)
            n = len(order)
            first, last = (round(k * weight * n) for k in (i, i + 1))
            parts.append(order[np.arange(first, last) % n])
        rng = np.random.default_rng([seed, i])
        return rng.permutation(np.sort(np.concatenate(parts)))

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
    vocabulary = settings.vocabulary
    tokenizer = Tokenizer(settings.nlp, settings.corpus, settings.code)
    # Words and Docs need no language here, but `embed` will ask for it.
    nlp = {**settings.nlp, "tokenizer": {"@tokenizers": RULES}}
    Tokenizer(nlp, settings.corpus, settings.code).load()
    width = settings.options.char_cnn.max_characters_per_token
    wanted = read_vocabulary(vocabulary.path) if vocabulary.path else vocabulary
    files = text_files(settings.paths.train)
    _warn_of_shared_files(files, text_files(settings.paths.dev))
    # A model without its checkpoints is not to be lost, either.
    resumes = any((output / name).is_file() for name in (CHECKPOINT, WEIGHTS_FILE))
    cache = output / TRAIN_CACHE
    train = load_corpus(files, cache, tokenizer, wanted, width, resumes)
    tokenizer = Tokenizer(settings.nlp, settings.corpus.as_it_stands(), settings.code)
    words = train.words[: train.vocab_size]
    # The best perplexity so far is that of this text.
    resumes = resumes and settings.training.compares_evaluations
    dev = load_each(
        settings.paths.dev, output / DEV_CACHES, tokenizer, words, width, resumes
    )
    return train, dev


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
    resumes: bool = False,
) -> Dict[str, Corpus]:
    """Each file as a corpus of its own, by its name. Arguments as of `load_corpus`."""
    files = text_files(paths)
    names = [file.name for file in files]
    return {
        name if names.count(name) == 1 else str(file): load_corpus(
            [file], folder / str(i), tokenizer, vocabulary, width, resumes
        )
        for i, (name, file) in enumerate(zip(names, files))
    }


def text_files(paths: Sequence[str]) -> List[Path]:
    """The files of several paths (see `find_texts`), each once."""
    found = [file for path in paths for file in find_texts(path)]
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
    found = key_of(cache)
    if resumes and found:
        require_same(cache, found, key, TrainingError)
    if found != key:
        write_cache(cache, files, tokenizer, key, weights, vocabulary, width)
    made = read_cache(cache, width)
    made["counts"] = TextCounts(**made["counts"])
    return Corpus(weights=weights, **made)


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
    if not any(weights):
        raise unusable("[corpus.weights]", "is 0 for each file")
    return weights
