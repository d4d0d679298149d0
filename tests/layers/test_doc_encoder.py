import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import MissingWeights
from spacy_elmo.layers.architectures import build_bilm
from spacy_elmo.layers.doc_encoder import get_shim
from spacy_elmo.segmenters import segment_docs, segment_sentences

NLP = spacy.blank("en")
N_LAYERS, WIDTH = 3, 12
TEXTS = [
    "Last year Eleanor wrote a short play for Chicago.",
    'He made a play. \n\n She saw it -- twice!  "It\'s good," she said. ',
    "Play!",
]


@pytest.fixture
def layer(calm_weights):
    return build_bilm(calm_weights)


def random_docs(n, seed=0, max_length=30):
    """Docs of words from a small alphabet, so that many words come again."""
    rng = random.Random(seed)
    docs = []
    for _ in range(n):
        words = ["".join(rng.choices("abcé日", k=3)) for _ in range(max_length)]
        words = [w if rng.random() > 0.1 else rng.choice([".", "\n\n"]) for w in words]
        docs.append(Doc(NLP.vocab, words=words[: rng.randrange(max_length)]))
    return docs


def assert_all_close(found, wanted, tolerance=1e-5):
    assert [X.shape for X in found] == [X.shape for X in wanted]
    for X, Y in zip(found, wanted):
        np.testing.assert_allclose(X, Y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "segmenter", [None, segment_docs(), segment_sentences(max_length=3)]
)
def test_each_segment_is_encoded_on_its_own_without_its_white_space(
    segmenter, calm_weights
):
    layer = build_bilm(calm_weights, segmenter)
    bilm = BiLM.from_path(calm_weights)
    docs = [NLP(text) for text in TEXTS]
    for doc, X in zip(docs, layer.predict(docs)):
        assert X.dtype == np.float32
        assert X.shape == (len(doc), N_LAYERS, WIDTH)
        for span in (segmenter or segment_sentences())(doc):
            tokens = [token for token in span if not token.is_space]
            wanted, _ = bilm.encode([[token.text for token in tokens]])
            rows = [token.i for token in tokens]
            np.testing.assert_allclose(X[rows], wanted[0], rtol=1e-5, atol=1e-6)
        assert not X[[token.i for token in doc if token.is_space]].any()


def test_a_vocab_without_a_language_knows_white_space_too(layer):
    words = ["He", "plays", ".", "\n\n", "She", "plays", " "]
    wanted, found = layer.predict([Doc(v, words=words) for v in (NLP.vocab, Vocab())])
    np.testing.assert_array_equal(found, wanted)


def test_the_same_doc_gives_the_same_vectors_in_any_company(calm_weights):
    layer = build_bilm(calm_weights)
    docs = random_docs(60)
    alone = [layer.predict([doc])[0] for doc in docs]
    assert_all_close(layer.predict(docs), alone)
    assert_all_close(layer.predict(docs), alone)
    assert_all_close(layer.predict(docs[::-1])[::-1], alone)
    small_batches = build_bilm(calm_weights, max_batch_tokens=16)
    assert_all_close(small_batches.predict(docs), alone)
    in_training, backprop = layer(docs, is_train=True)
    assert_all_close(in_training, alone)
    assert backprop(in_training) == []
    loaded = build_bilm("no such weights").from_bytes(layer.to_bytes())
    assert_all_close(loaded.predict(docs), alone)


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [[]],
        [[], []],
        [["word"]],
        [[" "]],
        [["\n\n", "\t", " "], []],
        [["x" * 500], ["語" * 200, "\x00"]],
        [["<S>", "</S>", "<UNK>", "\u200b", "\ufffd", "e\u0301"]],
    ],
)
@pytest.mark.parametrize("is_train", [False, True])
def test_odd_docs_have_the_right_shape_and_finite_vectors(layer, batch, is_train):
    docs = [Doc(NLP.vocab, words=words) for words in batch]
    Xs, backprop = layer(docs, is_train=is_train)
    assert [X.shape for X in Xs] == [(len(doc), N_LAYERS, WIDTH) for doc in docs]
    for doc, X in zip(docs, Xs):
        assert np.isfinite(X).all()
        assert X.any(axis=(1, 2)).tolist() == [not token.is_space for token in doc]
    assert backprop(Xs) == []


def test_a_long_doc_without_boundaries_is_cut(layer):
    words = ["word", "next", "other"] * 667
    X = layer.predict([Doc(NLP.vocab, words=words)])[0]
    assert X.shape == (2001, N_LAYERS, WIDTH)
    first = layer.predict([Doc(NLP.vocab, words=words[:256])])[0]
    assert_all_close([X[:256]], [first])


@pytest.mark.parametrize("cache_mb", [0.002, 64.0])
def test_threads_give_the_vectors_of_one_thread(cache_mb, calm_weights):
    # Each thread reads docs of its own: a Doc is not made for sharing
    batches = [random_docs(10, seed) for seed in range(12)]
    one = build_bilm(calm_weights)
    wanted = [one.predict(docs) for docs in batches]
    layer = build_bilm(calm_weights, cache_mb=cache_mb)  # not even loaded yet
    with ThreadPoolExecutor(8) as pool:
        for found, right in zip(pool.map(layer.predict, batches), wanted):
            assert_all_close(found, right)


@pytest.mark.parametrize(
    "bounds",
    [
        [],
        [(0, 2), (3, 5)],
        [(0, 3), (2, 5)],
        [(1, 5)],
        [(0, 4)],
        [(2, 5), (0, 2)],
        [(0, 5), (0, 5)],
    ],
)
def test_segments_that_do_not_cover_each_token_once_are_an_error(bounds, calm_weights):
    layer = build_bilm(calm_weights, lambda doc: [doc[a:b] for a, b in bounds])
    with pytest.raises(ValueError, match="ELMO037.* of 5"):
        layer.predict([Doc(NLP.vocab, words=["a", "b", "c", "d", "e"])])


@pytest.mark.parametrize("returned", [None, [[0, 2]]])
def test_a_segmenter_that_returns_no_spans_is_an_error(returned, calm_weights):
    layer = build_bilm(calm_weights, lambda doc: returned)
    with pytest.raises(ValueError, match="ELMO037"):
        layer.predict([Doc(NLP.vocab, words=["a", "b"])])


def test_a_segmenter_may_be_a_generator_and_give_empty_segments(calm_weights, layer):
    doc = NLP(TEXTS[0])
    bounds = [(0, 0), (0, 4), (4, 4), (4, len(doc))]
    split = build_bilm(calm_weights, lambda doc: (doc[a:b] for a, b in bounds))
    parts = [doc[:4].as_doc(), doc[4:].as_doc()]
    assert_all_close(split.predict([doc]), [np.concatenate(layer.predict(parts))])


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("precision, probe, tolerance", [
    ("bfloat16", "has_fast_bfloat16", 0.1), ("int8", "has_int8", 0.2)
])  # fmt: skip
def test_a_low_precision_is_close_and_only_used_where_it_is_fast(
    precision, probe, tolerance, fast, calm_weights, layer, monkeypatch, recwarn
):
    monkeypatch.setattr(f"spacy_elmo.bilm.precision.{probe}", lambda _: fast)
    docs = [NLP(text) for text in TEXTS]
    rounded = build_bilm(calm_weights, precision=precision)
    found, wanted = rounded.predict(docs), layer.predict(docs)
    assert_all_close(found, wanted, tolerance=tolerance)
    assert np.array_equal(found[0], wanted[0]) is not fast
    ours = [str(w.message)[:10] for w in recwarn if "ELMO" in str(w.message)]
    assert ours == ["[ELMOW002]"] * (not fast)


def test_weights_are_not_opened_before_the_first_use(tmp_path, calm_weights):
    layer = build_bilm(tmp_path / "later")
    with pytest.raises(MissingWeights, match="later"):
        layer.predict([NLP(TEXTS[0])])
    (tmp_path / "later").symlink_to(calm_weights)
    layer.initialize()
    assert (layer.get_dim("nL"), layer.get_dim("nO")) == (N_LAYERS, WIDTH)


def test_frozen_copies_share_their_weights_and_pickles_carry_them(layer):
    docs = [NLP(text) for text in TEXTS]
    wanted = layer.predict(docs)
    copied = layer.copy()
    assert get_shim(copied).bilm is get_shim(layer).bilm
    assert not any(p.requires_grad for p in get_shim(layer).bilm.parameters())
    pickled = pickle.loads(pickle.dumps(layer))
    assert get_shim(pickled).bilm is not get_shim(layer).bilm
    for other in (copied, pickled):
        assert_all_close(other.predict(docs), wanted)


def test_a_device_that_is_not_there_is_a_clear_error(calm_weights):
    docs = random_docs(3)
    for device in ("gpu", "meta", "cuda:99"):
        with pytest.raises(ValueError, match=f"ELMO041.*'{device}'.*'cuda:1'"):
            build_bilm(calm_weights, device=device).predict(docs)
    assert len(build_bilm(calm_weights, device="cpu").predict(docs)) == len(docs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_vectors_of_the_cpu(calm_weights):
    docs = random_docs(3)
    on_gpu = build_bilm(calm_weights, device="cuda:0").predict(docs)
    assert_all_close(on_gpu, build_bilm(calm_weights).predict(docs), 1e-4)
