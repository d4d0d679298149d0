import os
import pickle
import sqlite3
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_elmo.bilm import BiLM
from spacy_elmo.layers import caches
from spacy_elmo.layers.architectures import build_bilm
from spacy_elmo.layers.caches import SentenceCache
from spacy_elmo.layers.doc_encoder import get_shim

TEXTS = ["The play ran . It closed .", "Play it", "The play ran .", "a"]


@pytest.fixture
def docs():
    vocab = Vocab()
    return [Doc(vocab, words=text.split()) for text in TEXTS]


@pytest.fixture
def n_sentences(monkeypatch):
    """How many sentences the biLM is given, call after call."""
    counted, encode_ids = [], BiLM.encode_ids

    def count(self, table, sentences, **kwargs):
        counted.append(len(sentences))
        return encode_ids(self, table, sentences, **kwargs)

    monkeypatch.setattr(BiLM, "encode_ids", count)
    return counted


def run(layer, docs, is_train=True):
    return layer(docs, is_train=is_train)[0]


def test_in_training_a_sentence_is_read_once(calm_weights, docs, n_sentences):
    layer = build_bilm(calm_weights)
    first = run(layer, docs)
    n = sum(n_sentences)
    again = run(layer, docs[::-1])[::-1]
    assert sum(n_sentences) == n > 0
    for mine, theirs in zip(again, first):
        np.testing.assert_array_equal(mine, theirs)
    # Prediction hits it too: that is how `spacy train` evaluates.
    np.testing.assert_array_equal(run(layer, docs, is_train=False)[0], first[0])
    assert sum(n_sentences) == n


def test_prediction_alone_keeps_nothing(calm_weights, docs, n_sentences):
    layer = build_bilm(calm_weights)
    for _ in range(2):
        run(layer, docs, is_train=False)
    assert get_shim(layer).sentence_cache.n_bytes == 0
    assert n_sentences[0] == n_sentences[1]


def test_the_vectors_are_those_without_a_cache(calm_weights, docs):
    cached, plain = (
        build_bilm(calm_weights),
        build_bilm(calm_weights, sentence_cache_mb=0),
    )
    run(cached, docs[:2])
    for mine, theirs in zip(run(cached, docs), run(plain, docs)):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    assert not get_shim(plain).sentence_cache.is_open


@pytest.mark.parametrize("megabytes", [0.0001, 0.001])
def test_the_memory_is_bounded(megabytes, calm_weights, docs):
    layer = build_bilm(calm_weights, sentence_cache_mb=megabytes)
    wanted = run(build_bilm(calm_weights), docs)
    for _ in range(3):
        for mine, theirs in zip(run(layer, docs), wanted):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    assert get_shim(layer).sentence_cache.n_bytes <= megabytes * 2**20


def test_a_folder_serves_later_runs(calm_weights, docs, n_sentences, tmp_path):
    settings = {"sentence_cache_mb": 0, "sentence_cache_path": str(tmp_path / "cache")}
    first = run(build_bilm(calm_weights, **settings), docs)
    n = sum(n_sentences)
    for mine, theirs in zip(run(build_bilm(calm_weights, **settings), docs), first):
        np.testing.assert_array_equal(mine, theirs)
    assert sum(n_sentences) == n


def test_an_empty_path_is_no_folder(bilm_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", config={"model": bilm_config(sentence_cache_path="")})
    nlp.get_pipe("elmo").open_sentence_cache()
    nlp("A play.")
    assert not list(tmp_path.iterdir())


def test_a_folder_may_be_in_the_home(calm_weights, docs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME" if os.name == "posix" else "USERPROFILE", str(tmp_path))
    run(build_bilm(calm_weights, sentence_cache_path="~/cache"), docs)
    assert list((tmp_path / "cache").glob("*.sqlite"))


def test_nobody_has_no_home(calm_weights, docs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(build_bilm(calm_weights, sentence_cache_path="~nobody-of-this-name/x"), docs)
    assert list(tmp_path.glob("~nobody-of-this-name/x/*.sqlite"))


def test_what_a_folder_has_is_read_from_it_once(calm_weights, docs, tmp_path):
    settings = {"sentence_cache_path": str(tmp_path)}
    run(build_bilm(calm_weights, **settings), docs)
    layer = build_bilm(calm_weights, **settings)
    first = run(layer, docs)
    assert get_shim(layer).sentence_cache.n_bytes > 0
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as disk:
        disk.execute("UPDATE layers SET layers = zeroblob(length(layers)), crc = NULL")
    for mine, theirs in zip(run(layer, docs), first):
        np.testing.assert_array_equal(mine, theirs)
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as disk:
        assert disk.execute("SELECT COUNT(crc) FROM layers").fetchone()[0] == 0


def test_layers_of_other_words_are_no_layers(calm_weights, tmp_path):
    docs = [Doc(Vocab(), words=words) for words in (["a", "play"], ["the", "dog"])]
    settings = {"sentence_cache_path": str(tmp_path)}
    wanted = run(build_bilm(calm_weights, **settings), docs)
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as disk:
        one, two = disk.execute("SELECT words FROM layers").fetchall()
        for words, old in (("x", one[0]), (one[0], two[0]), (two[0], "x")):
            disk.execute("UPDATE layers SET words = ? WHERE words = ?", (words, old))
    for mine, theirs in zip(run(build_bilm(calm_weights, **settings), docs), wanted):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


def test_other_weights_have_a_file_of_their_own(
    calm_weights, other_weights, docs, tmp_path
):
    settings = {"sentence_cache_path": str(tmp_path)}
    run(build_bilm(calm_weights, **settings), docs)
    found = run(build_bilm(other_weights, **settings), docs)
    for mine, theirs in zip(found, run(build_bilm(other_weights), docs)):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    assert len(list(tmp_path.glob("*.sqlite"))) == 2


def test_the_file_is_named_by_the_precision_that_was_used(calm_weights, docs, tmp_path):
    """Not by "auto", which is another one on another machine."""
    settings = {"sentence_cache_path": str(tmp_path), "precision": "auto"}
    run(build_bilm(calm_weights, **settings), docs)
    used = BiLM.from_path(calm_weights).use_precision("auto").precision
    assert len(list(tmp_path.glob(f"*-{used}.sqlite"))) == 1


@pytest.mark.parametrize("broken", ["a file for a folder", "no database"])
def test_a_folder_that_cannot_be_used_is_a_warning(
    broken, calm_weights, docs, tmp_path
):
    settings = {"sentence_cache_path": str(tmp_path / "cache")}
    wanted = run(build_bilm(calm_weights, **settings), docs)
    file = next((tmp_path / "cache").glob("*.sqlite"))
    if broken == "no database":
        file.write_bytes(b"no database " * 100)
    else:
        file.rename(tmp_path / "moved")
        (tmp_path / "cache").rmdir()
        (tmp_path / "moved").rename(tmp_path / "cache")
    layer = build_bilm(calm_weights, **settings)
    with pytest.warns(UserWarning, match="ELMOW004.*cache"):
        found = run(layer, docs)
    for mine, theirs in zip(found, wanted):
        np.testing.assert_array_equal(mine, theirs)


def test_a_full_disk_ends_the_cache_and_not_the_training(
    calm_weights, tmp_path, monkeypatch
):
    docs = [Doc(Vocab(), words=[f"play{i}"] * 20) for i in range(20)]
    wanted = run(build_bilm(calm_weights), docs)
    connect = sqlite3.connect

    def connect_to_a_small_disk(*args, **kwargs):
        disk = connect(*args, **kwargs)
        disk.execute("PRAGMA max_page_count = 3")
        return disk

    monkeypatch.setattr(sqlite3, "connect", connect_to_a_small_disk)
    layer = build_bilm(calm_weights, sentence_cache_path=str(tmp_path / "cache"))
    with pytest.warns(UserWarning, match="ELMOW004.*full"):
        found = run(layer, docs)
    for vectors in (found, run(layer, docs)):
        for mine, theirs in zip(vectors, wanted):
            np.testing.assert_array_equal(mine, theirs)
    assert get_shim(layer).sentence_cache.n_bytes > 0  # in memory


@pytest.mark.parametrize(
    "damage",
    [
        "layers = zeroblob(length(layers))",
        "layers = substr(layers, 1, 48)",
        "layers = NULL",
        "layers = 'text'",
        "layers = 7",
        "crc = NULL",
        "crc = 'text'",
    ],
)
def test_damaged_rows_are_computed_again(damage, calm_weights, docs, tmp_path):
    wanted = run(build_bilm(calm_weights, sentence_cache_path=str(tmp_path)), docs)
    file = next(tmp_path.glob("*.sqlite"))
    with sqlite3.connect(file) as disk:
        whole = disk.execute("SELECT * FROM layers ORDER BY words").fetchall()
        disk.execute(f"UPDATE layers SET {damage}")
    for _ in range(2):
        layer = build_bilm(calm_weights, sentence_cache_path=str(tmp_path))
        for mine, right in zip(run(layer, docs), wanted):
            np.testing.assert_array_equal(mine, right)
    with sqlite3.connect(file) as disk:
        assert disk.execute("SELECT * FROM layers ORDER BY words").fetchall() == whole
    assert len(whole) == 4


def test_a_lock_that_lasts_is_a_warning_and_goes_on_without_the_disk(
    calm_weights, docs, tmp_path, monkeypatch
):
    monkeypatch.setattr(caches, "DISK_TIMEOUT", 0.1)
    settings = {"sentence_cache_path": str(tmp_path)}
    wanted = run(build_bilm(calm_weights, **settings), docs[:2])
    layer = build_bilm(calm_weights, **settings)
    run(layer, docs[:2])
    other = sqlite3.connect(next(tmp_path.glob("*.sqlite")))
    other.execute("BEGIN EXCLUSIVE")
    for at_work in (layer, build_bilm(calm_weights, **settings)):
        with pytest.warns(UserWarning, match="ELMOW004.*locked"):
            found = run(at_work, docs)
        for mine, right in zip(found, wanted):
            np.testing.assert_allclose(mine, right, rtol=0, atol=1e-5)
        assert get_shim(at_work).sentence_cache.is_open
    other.rollback()


def test_a_process_at_work_keeps_no_other_from_the_file(
    calm_weights, docs, tmp_path, monkeypatch
):
    """In the middle of one run, after its first batch, another runs to its end."""
    monkeypatch.setattr(caches, "DISK_TIMEOUT", 0.1)
    settings = {"sentence_cache_path": str(tmp_path), "max_batch_tokens": 1}
    one, other = (build_bilm(calm_weights, **settings) for _ in range(2))
    n_batches, forward = [], BiLM.forward

    def interrupted(self, *args, **kwargs):
        n_batches.append(1)
        if len(n_batches) == 3:
            run(other, docs[1:])
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(BiLM, "forward", interrupted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(one, docs)
    assert len(n_batches) > 4


def test_threads_share_a_cache(calm_weights, docs, tmp_path):
    layer = build_bilm(calm_weights, sentence_cache_path=str(tmp_path))
    wanted = run(build_bilm(calm_weights), docs)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: run(layer, docs), range(24)))
    for found in runs:
        for mine, theirs in zip(found, wanted):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


def test_it_stays_behind_when_a_pipeline_is_pickled_or_copied(calm_weights, docs):
    layer = build_bilm(calm_weights)
    run(layer, docs)
    assert get_shim(layer).sentence_cache.n_bytes > 0
    for other in (pickle.loads(pickle.dumps(layer)), layer.copy()):
        cache = get_shim(other).sentence_cache
        assert cache.n_bytes == 0 and not cache.is_open
        assert cache.max_bytes == get_shim(layer).sentence_cache.max_bytes


def test_spacys_update_opens_it(nlp):
    doc = nlp.make_doc("It is a play")
    shim = get_shim(nlp.get_pipe("elmo").model)
    nlp(doc.copy())
    assert not shim.sentence_cache.is_open
    nlp.get_pipe("elmo").update([Example(doc.copy(), doc)])
    assert shim.sentence_cache.is_open and shim.sentence_cache.n_bytes > 0


def test_a_fine_tuned_biLM_keeps_none(calm_weights, docs):
    layer = build_bilm(calm_weights)
    get_shim(layer).make_trainable(1.0)
    run(layer, docs)
    assert not get_shim(layer).sentence_cache.is_open


def test_a_closed_cache_is_never_written(tmp_path):
    cache = SentenceCache(2**20, tmp_path)
    cache.put([["a"]], [np.zeros((1, 3, 4), np.float32)])
    assert cache.get([["a"]]) == [None]
    assert not list(tmp_path.iterdir())


def test_the_file_is_a_plain_database(calm_weights, docs, tmp_path):
    run(build_bilm(calm_weights, sentence_cache_path=str(tmp_path)), docs)
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as disk:
        n = disk.execute("SELECT COUNT(*) FROM layers").fetchone()[0]
    assert n == 4  # one of the five sentences stands there twice
