import json
import os

import numpy as np
import pytest

from spacy_elmo.bilm.characters import words_to_ids
from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining import corpus as corpus_module
from spacy_elmo.pretraining.config import CorpusSettings
from spacy_elmo.pretraining.corpus import Preparation, load_corpora
from spacy_elmo.pretraining.vocabulary import SPECIAL

TEXT = "b a b\na c\n\n\nb <S> d\n"


def words_of(corpus, i):
    return " ".join(corpus.words[k] for k in corpus.document(i))


def test_sentences_are_ranked_ids_closed_by_their_end(make_corpus):
    corpus = make_corpus(TEXT, min_count=2)
    assert corpus.words == [*SPECIAL, "b", "a", "c", "d"]
    assert corpus.vocab_size == 5
    assert [words_of(corpus, i) for i in range(corpus.n_documents)] == [
        "b a b </S> a c </S>", "b <UNK> d </S>"
    ]  # fmt: skip
    assert corpus.counts.sentences == 3
    assert corpus.counts.characters == 7 * 2 + 4  # "<S>" and its blank are 4
    # "<S>", "c" and "d"
    assert (corpus.counts.words, corpus.counts.unknown) == (8, 3)
    assert np.array_equal(corpus.characters, words_to_ids(corpus.words, 16))
    assert corpus.in_vocabulary(np.array([0, 4, 5, 6])).tolist() == [0, 4, 2, 2]


def test_a_given_vocabulary_stands_in_front(make_corpus):
    corpus = make_corpus(TEXT, vocabulary=[*SPECIAL, "unseen", "a"])
    assert corpus.vocab_size == 5
    assert corpus.words[:5] == [*SPECIAL, "unseen", "a"]
    assert words_of(corpus, 0) == "b a b </S> a c </S>"


def test_words_with_odd_characters_survive(make_corpus):
    words = ["a\u2028b", "\x85x", "\x1cy", "\u00e9"]
    line = json.dumps({"tokens": [*words, "a\rb", "c\nd", " "]})
    corpus = make_corpus(line + "\n", name="text.jsonl")
    assert [corpus.words[i] for i in corpus.document(0)] == [
        *words, "a b", "c d", "</S>"
    ]  # fmt: skip


def test_a_share_of_the_documents_gets_ascii_quotes(make_corpus):
    text = "\u201cso\u2019\n\n" * 5
    corpus = make_corpus(text, settings={"ascii_quotes": 0.4})
    plain = [words_of(corpus, i).startswith("\"so'") for i in range(5)]
    assert plain == [False, False, True, False, True]


def test_the_cache_is_reused_until_something_changes(
    make_corpus, tmp_path, monkeypatch
):
    first = make_corpus(TEXT, min_count=1)
    stat = os.stat(tmp_path / "text.txt")

    def again(text, **how):
        # As it was before it was written anew.
        (tmp_path / "text.txt").write_text(text)
        os.utime(tmp_path / "text.txt", ns=(stat.st_atime_ns, stat.st_mtime_ns))
        settings = CorpusSettings(tokenized=True, n_process=how.pop("n_process", 1))
        preparation = Preparation({"lang": "en"}, settings, 16, **how)
        files, cache = [tmp_path / "text.txt"], tmp_path / "text.txt.cache"
        return corpus_module.load_corpus(files, cache, preparation, silent=True)

    with monkeypatch.context() as patch:
        patch.setattr(corpus_module, "tokenize", None)
        assert np.array_equal(again(TEXT).tokens, first.tokens)
        again(TEXT, n_process=2)
    assert again(TEXT, min_count=2).vocab_size == 5
    assert len(again(TEXT + "e\n", min_count=2).tokens) == len(first.tokens) + 2


def test_several_processes_make_the_same_corpus(make_corpus):
    text = "".join(f"word{i % 7} is {i}\n\n" for i in range(200))
    one = make_corpus(text, name="one.txt")
    two = make_corpus(text, name="two.txt", settings={"n_process": 2})
    assert one.words == two.words
    assert np.array_equal(one.tokens, two.tokens)
    assert np.array_equal(one.starts, two.starts)


@pytest.mark.parametrize("text", ["", "\n \n\t\n"])
def test_an_empty_text_is_an_error(make_corpus, text):
    with pytest.raises(CorpusError, match=r"ELMO050.*text\.txt"):
        make_corpus(text)


def test_held_out_text_has_the_vocabulary_of_the_training_text(make_settings, tmp_path):
    settings = make_settings(overrides={"vocabulary.max_size": 10})
    train, dev = load_corpora(settings, tmp_path / "out", silent=True)
    assert train.vocab_size == dev["dev.txt"].vocab_size == 10
    assert train.words[:10] == dev["dev.txt"].words[:10]
