"""Text as memory-mapped word ids, made once and reused."""

import json
import mmap
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from ..text import find_texts, read_documents
from .config import CorpusSettings, Settings
from .corpus_files import Recipe, fingerprint, make_cache
from .tokenizer import Sentences, Tokenizer, tokenize
from .vocabulary import UNK_ID, read_vocabulary

Ints = npt.NDArray[Any]

# Typographic quotes -> the ASCII ones that treebanks and most web text use.
_ASCII_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


class Corpus(NamedTuple):
    """Word ids on disk. Sentences stand one behind the other, each closed by </S>;
    <S> is left out. Ids rank all words of the corpus: those below `vocab_size` are
    in the softmax's vocabulary, the others are its <UNK> but keep their characters.

    tokens (Ints1d): Word ids, int32, memory-mapped.
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
        """The word ids of a document, in memory."""
        ids = np.array(self.tokens[self.starts[i] : self.starts[i + 1]])
        # Pages that have been read would count as this process's until the end.
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            pages: Any = self.tokens.base
            pages.madvise(mmap.MADV_DONTNEED)
        return ids

    def in_vocabulary(self, ids: Ints) -> Ints:
        """Word ids as the softmax predicts them."""
        return np.where(ids < self.vocab_size, ids, UNK_ID)


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
        make_cache(_with_bar(documents, silent), making, key, path, recipe)
        shutil.rmtree(cache, ignore_errors=True)
        making.rename(cache)
    return _open_cache(cache)


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
