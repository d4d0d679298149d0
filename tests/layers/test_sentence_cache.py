import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from spacy.tokens import Doc
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_elmo.layers.doc_encoder import BiLMLayer, get_shim
from spacy_elmo.layers.sentence_cache import SentenceCache

TEXTS = ["The play ran . It closed .", "Play it", "The play ran .", "a"]


@pytest.fixture
def docs():
    vocab = Vocab()
    return [Doc(vocab, words=text.split()) for text in TEXTS]


@pytest.fixture
def lstm_tokens(monkeypatch):
    """Counts the tokens that run through the LSTMs."""
    from spacy_elmo.bilm import BiLM

    counted, forward = [], BiLM.forward

    def count(self, x, *args, **kwargs):
        counted.append(len(x))
        return forward(self, x, *args, **kwargs)

    monkeypatch.setattr(BiLM, "forward", count)
    return counted


def run(layer, docs, is_train=True):
    return layer(docs, is_train=is_train)[0]


def test_in_training_a_sentence_is_read_once(calm_weights, docs, lstm_tokens):
    layer = BiLMLayer(calm_weights)
    first = run(layer, docs)
    n = sum(lstm_tokens)
    again = run(layer, docs[::-1])[::-1]
    assert sum(lstm_tokens) == n > 0
    for mine, theirs in zip(again, first):
        np.testing.assert_array_equal(mine, theirs)
    # Prediction hits it too: that is how `spacy train` evaluates.
    np.testing.assert_array_equal(run(layer, docs, is_train=False)[0], first[0])
    assert sum(lstm_tokens) == n


def test_prediction_alone_keeps_nothing(calm_weights, docs, lstm_tokens):
    layer = BiLMLayer(calm_weights)
    for _ in range(2):
        run(layer, docs, is_train=False)
    assert get_shim(layer).sentences.n_bytes == 0
    assert lstm_tokens[0] == lstm_tokens[1]


def test_the_vectors_are_those_without_a_cache(calm_weights, docs):
    cached, plain = (
        BiLMLayer(calm_weights),
        BiLMLayer(calm_weights, sentence_cache_mb=0),
    )
    run(cached, docs[:2])
    for mine, theirs in zip(run(cached, docs), run(plain, docs)):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    assert not get_shim(plain).sentences.is_open


@pytest.mark.parametrize("megabytes", [0.0001, 0.001])
def test_the_memory_is_bounded(megabytes, calm_weights, docs):
    layer = BiLMLayer(calm_weights, sentence_cache_mb=megabytes)
    wanted = run(BiLMLayer(calm_weights), docs)
    for _ in range(3):
        for mine, theirs in zip(run(layer, docs), wanted):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    assert get_shim(layer).sentences.n_bytes <= megabytes * 2**20


def test_a_folder_serves_later_runs(calm_weights, docs, lstm_tokens, tmp_path):
    settings = {"sentence_cache_mb": 0, "sentence_cache_path": str(tmp_path / "cache")}
    first = run(BiLMLayer(calm_weights, **settings), docs)
    n = sum(lstm_tokens)
    for mine, theirs in zip(run(BiLMLayer(calm_weights, **settings), docs), first):
        np.testing.assert_array_equal(mine, theirs)
    assert sum(lstm_tokens) == n


def test_other_weights_have_a_file_of_their_own(
    calm_weights, other_weights, docs, tmp_path
):
    settings = {"sentence_cache_path": str(tmp_path)}
    run(BiLMLayer(calm_weights, **settings), docs)
    found = run(BiLMLayer(other_weights, **settings), docs)
    for mine, theirs in zip(found, run(BiLMLayer(other_weights), docs)):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    assert len(list(tmp_path.glob("*.sqlite"))) == 2


def test_a_folder_that_cannot_be_used_is_a_clear_error(calm_weights, docs, tmp_path):
    (tmp_path / "file").write_text("")
    layer = BiLMLayer(calm_weights, sentence_cache_path=str(tmp_path / "file"))
    with pytest.raises(OSError, match="ELMO040"):
        run(layer, docs)


def test_a_damaged_file_is_a_clear_error(calm_weights, docs, tmp_path):
    run(BiLMLayer(calm_weights, sentence_cache_path=str(tmp_path)), docs)
    file = next(tmp_path.glob("*.sqlite"))
    file.write_bytes(b"no database " * 100)
    with pytest.raises(OSError, match="ELMO040.*remove"):
        run(BiLMLayer(calm_weights, sentence_cache_path=str(tmp_path)), docs)


def test_a_full_disk_ends_the_cache_and_not_the_training(calm_weights, tmp_path):
    docs = [Doc(Vocab(), words=[f"play{i}"] * 20) for i in range(20)]
    layer = BiLMLayer(calm_weights, sentence_cache_path=str(tmp_path / "cache"))
    wanted = run(BiLMLayer(calm_weights), docs)
    cache = get_shim(layer).sentences
    cache.open(get_shim(layer).bilm, "float32-zero")
    cache._disk.execute("PRAGMA max_page_count = 3")
    with pytest.warns(UserWarning, match="ELMOW004.*full"):
        found = run(layer, docs)
    for vectors in (found, run(layer, docs)):
        for mine, theirs in zip(vectors, wanted):
            np.testing.assert_array_equal(mine, theirs)
    assert cache.is_open and cache.n_bytes > 0  # in memory


def test_threads_share_a_cache(calm_weights, docs, tmp_path):
    layer = BiLMLayer(calm_weights, sentence_cache_path=str(tmp_path))
    wanted = run(BiLMLayer(calm_weights), docs)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: run(layer, docs), range(24)))
    for found in runs:
        for mine, theirs in zip(found, wanted):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


def test_it_stays_behind_when_a_pipeline_is_pickled_or_copied(calm_weights, docs):
    layer = BiLMLayer(calm_weights)
    run(layer, docs)
    assert get_shim(layer).sentences.n_bytes > 0
    for other in (pickle.loads(pickle.dumps(layer)), layer.copy()):
        cache = get_shim(other).sentences
        assert cache.n_bytes == 0 and not cache.is_open
        assert cache.max_bytes == get_shim(layer).sentences.max_bytes


def test_spacys_update_opens_it(nlp):
    doc = nlp.make_doc("It is a play")
    shim = get_shim(nlp.get_pipe("elmo").model)
    nlp(doc.copy())
    assert not shim.sentences.is_open
    nlp.get_pipe("elmo").update([Example(doc.copy(), doc)])
    assert shim.sentences.is_open and shim.sentences.n_bytes > 0


def test_a_fine_tuned_biLM_keeps_none(calm_weights, docs):
    layer = BiLMLayer(calm_weights)
    get_shim(layer).make_trainable()
    run(layer, docs)
    assert not get_shim(layer).sentences.is_open


def test_a_closed_cache_is_never_written(tmp_path):
    cache = SentenceCache(2**20, tmp_path)
    assert not cache.get(b"key", np.zeros((1, 3, 4), np.float32))
    assert not list(tmp_path.iterdir())


def test_the_file_is_a_plain_database(calm_weights, docs, tmp_path):
    run(BiLMLayer(calm_weights, sentence_cache_path=str(tmp_path)), docs)
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as disk:
        n = disk.execute("SELECT COUNT(*) FROM sentences").fetchone()[0]
    assert n == 4  # one of the five sentences stands there twice


def test_a_device_that_is_not_there_is_a_clear_error(calm_weights, docs):
    with pytest.raises(ValueError, match="ELMO041.*'nonsense'"):
        run(BiLMLayer(calm_weights, device="nonsense"), docs)
    assert len(run(BiLMLayer(calm_weights, device="cpu"), docs)) == len(docs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_vectors_of_the_cpu(calm_weights, docs):
    on_gpu = run(BiLMLayer(calm_weights, device="cuda:0"), docs)
    for mine, theirs in zip(on_gpu, run(BiLMLayer(calm_weights), docs)):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-4)
