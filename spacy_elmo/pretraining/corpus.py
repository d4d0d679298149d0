"""Text -> a memory-mapped cache of word ids, made once and reused."""

import hashlib
import json
import shutil
from array import array
from dataclasses import replace
from pathlib import Path
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from ..bilm.characters import words_to_ids
from ..errors import CorpusError, Errors
from .settings import CorpusSettings, Settings
from .text import find_texts, read_documents
from .tokenizer import Sentences, Tokenizer, tokenize
from .vocabulary import (
    EOS_ID,
    SPECIAL,
    UNK_ID,
    rank_words,
    read_vocabulary,
    vocabulary_size,
)

Ints = npt.NDArray[Any]

VERSION = 1
# Tokens that are in memory at a time while the ids are rewritten, and words whose
# characters are.
CHUNK_TOKENS = 1 << 22
CHUNK_WORDS = 1 << 16

# Typographic quotes -> the ASCII ones that treebanks and most web text use.
_ASCII_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


class Corpus(NamedTuple):
    """Word ids on disk. Sentences stand one behind the other, each closed by </S>;
    <S> is left out. Ids rank all words of the corpus: those below `vocab_size` are
    in the softmax's vocabulary, the others are its <UNK> but keep their characters.

    tokens (Ints1d): Word ids, int32.
    starts (Ints1d): Where each document starts, and the end: (n_documents + 1,).
    words (List[str]): The word of each id.
    characters (Ints2d): Character ids of each word, (n_words, max_characters).
    vocab_size (int): Words that the softmax predicts.
    n_characters (int): Characters of the words and one blank after each: what bits
        per character divides by.
    n_sentences (int): Sentences.
    """

    tokens: Ints
    starts: Ints
    words: List[str]
    characters: Ints
    vocab_size: int
    n_characters: int
    n_sentences: int

    @property
    def n_documents(self) -> int:
        return len(self.starts) - 1

    def document(self, i: int) -> Ints:
        return self.tokens[self.starts[i] : self.starts[i + 1]]

    def in_vocabulary(self, ids: Ints) -> Ints:
        """Word ids as the softmax predicts them."""
        return np.where(ids < self.vocab_size, ids, UNK_ID)


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


def load_corpora(
    settings: Settings, output: Path, *, silent: bool = False
) -> Tuple[Corpus, Optional[Corpus]]:
    """The training text, and the held-out text by the same vocabulary.

    settings (Settings): The config.
    output (Path): The caches are in its folder `corpus`.
    RETURNS (Tuple[Corpus, Optional[Corpus]]): Training and held-out text.
    """
    cache, code, vocabulary = output / "corpus", settings.code, settings.vocabulary
    recipe = Recipe(
        settings.nlp,
        settings.corpus,
        None if vocabulary.path is None else read_vocabulary(vocabulary.path),
        vocabulary.min_count,
        vocabulary.max_size,
        settings.options.char_cnn.max_characters_per_token,
    )
    train = load_corpus(
        settings.train, cache / "train", recipe, code=code, silent=silent
    )
    if settings.dev is None:
        return train, None
    # Held-out text is read as it stands.
    recipe = Recipe(
        settings.nlp,
        replace(settings.corpus, ascii_quotes=0.0),
        train.words[: train.vocab_size],
        max_characters=recipe.max_characters,
    )
    dev = load_corpus(settings.dev, cache / "dev", recipe, code=code, silent=silent)
    return train, dev


def load_corpus(
    path: str,
    cache: Path,
    recipe: Recipe,
    *,
    code: Optional[Path] = None,
    silent: bool = False,
) -> Corpus:
    """Open the cache of a corpus, and make it first unless it is there for the same
    files and recipe.

    path (str): A file, directory or glob of text (see `text`).
    cache (Path): Directory of the cache.
    recipe (Recipe): What it is made by.
    code (Path): Python file with registered functions that the recipe names.
    silent (bool): No progress bar.
    RETURNS (Corpus): The text.
    RAISES (CorpusError): If there is no text, or if a file is damaged.
    """
    files = find_texts(path)
    key = fingerprint(files, recipe)
    if not _is_made(cache, key):
        making = cache.with_name(cache.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        tokenizer = Tokenizer(recipe.nlp, recipe.settings, code)
        documents = tokenize(
            _documents(files, recipe.settings), tokenizer, recipe.settings.n_process
        )
        _make_cache(_with_bar(documents, silent), making, key, path, recipe)
        shutil.rmtree(cache, ignore_errors=True)
        making.rename(cache)
    return _open_cache(cache)


def fingerprint(files: List[Path], recipe: Recipe) -> str:
    """Changes when a file or the recipe does."""
    stats = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    # How many processes tokenize makes no difference.
    recipe = recipe._replace(settings=replace(recipe.settings, n_process=1))
    key = repr((VERSION, stats, tuple(recipe)))
    return hashlib.sha256(key.encode("utf8")).hexdigest()


def _is_made(cache: Path, key: str) -> bool:
    meta = cache / "meta.json"
    return meta.is_file() and json.loads(meta.read_text()).get("key") == key


def _open_cache(cache: Path) -> Corpus:
    meta = json.loads((cache / "meta.json").read_text())
    return Corpus(
        tokens=np.load(cache / "tokens.npy", mmap_mode="r"),
        starts=np.load(cache / "starts.npy"),
        words=(cache / "words.txt").read_bytes().decode("utf8").split("\n")[:-1],
        characters=np.load(cache / "characters.npy", mmap_mode="r"),
        vocab_size=meta["vocab_size"],
        n_characters=meta["n_characters"],
        n_sentences=meta["n_sentences"],
    )


def _documents(files: List[Path], settings: CorpusSettings) -> Iterator[Any]:
    owed = 0.0
    for file in files:
        for document in read_documents(file):
            # Spread evenly over the documents, and the same in each run.
            owed += settings.ascii_quotes
            if owed >= 1:
                owed -= 1
                document = _with_ascii_quotes(document)
            yield document


def _with_ascii_quotes(document: Any) -> Any:
    if isinstance(document, list):
        return [_with_ascii_quotes(part) for part in document]
    return document.translate(_ASCII_QUOTES) if isinstance(document, str) else document


def _with_bar(documents: Iterable[Sentences], silent: bool) -> Iterator[Sentences]:
    with tqdm(unit=" words", unit_scale=True, disable=silent, desc="Corpus") as bar:
        for sentences in documents:
            bar.update(sum(map(len, sentences)))
            yield sentences


def _make_cache(
    documents: Iterable[Sentences], folder: Path, key: str, path: str, recipe: Recipe
) -> None:
    """Two passes: words get ids as they turn up, and then by their rank."""
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
    before = np.memmap(provisional, dtype=np.int32, mode="r")
    tokens = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.int32, shape=(n_tokens,)
    )
    for i in range(0, n_tokens, CHUNK_TOKENS):
        tokens[i : i + CHUNK_TOKENS] = rank[before[i : i + CHUNK_TOKENS]]
    tokens.flush()
    del before
    provisional.unlink()


def _write_characters(path: Path, words: List[str], max_characters: int) -> None:
    characters = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.int16, shape=(len(words), max_characters)
    )
    for i in range(0, len(words), CHUNK_WORDS):
        part = words[i : i + CHUNK_WORDS]
        characters[i : i + len(part)] = words_to_ids(part, max_characters)
    characters.flush()
