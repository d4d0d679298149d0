from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from thinc.api import NumpyOps, get_current_ops, use_ops

from spacy_elmo.bilm.tuning import THREADED_PRODUCT
from spacy_elmo.layers.ops import TorchOps


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("trans1", [False, True])
@pytest.mark.parametrize("trans2", [False, True])
def test_products_are_those_of_numpy_ops(trans1, trans2):
    x = random(*((7, 5) if trans1 else (5, 7)))
    y = random(*((3, 7) if trans2 else (7, 3)))
    wanted = NumpyOps().gemm(x, y, trans1=trans1, trans2=trans2)
    found = TorchOps().gemm(x, y, trans1=trans1, trans2=trans2)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    out = np.empty_like(wanted)
    assert TorchOps().gemm(x, y, out=out, trans1=trans1, trans2=trans2) is out
    np.testing.assert_array_equal(out, found)


def test_products_of_slices_and_of_no_rows():
    x, y = random(9, 14)[::2, ::2], random(7, 6)[:, ::2]
    np.testing.assert_allclose(TorchOps().gemm(x, y), x @ y, rtol=1e-5, atol=1e-6)
    assert TorchOps().gemm(x[:0], y).shape == (0, 3)


def test_products_of_arrays_that_cannot_be_written():
    x = random(5, 7)
    x.flags.writeable = False
    np.testing.assert_allclose(TorchOps().gemm(x, x.T), x @ x.T, rtol=1e-5, atol=1e-6)


def test_autocast_does_not_change_products():
    x = random(50, 70)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = TorchOps().gemm(x, x, trans2=True)
    np.testing.assert_allclose(found, x @ x.T, rtol=1e-5, atol=1e-4)


@pytest.fixture
def two_threads():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def taken(monkeypatch):
    """The number of threads of each product of torch's."""
    taken = []

    def matmul(a, b):
        taken.append(torch.get_num_threads())
        return a @ b

    monkeypatch.setattr("spacy_elmo.layers.ops.matmul", matmul)
    return taken


def multiply_few_and_many_rows():
    y = random(64, 64)
    for n_rows in (10, THREADED_PRODUCT // y.size):
        found = TorchOps().gemm(np.ones((n_rows, 64), np.float32), y)
        np.testing.assert_allclose(found[-1], y.sum(axis=0), rtol=1e-4, atol=1e-4)


def test_small_products_take_one_thread(two_threads, taken):
    multiply_few_and_many_rows()
    assert taken == [1, 2]
    assert torch.get_num_threads() == 2


def test_threads_of_a_server_never_change_the_number_of_threads(two_threads, taken):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(multiply_few_and_many_rows).result()
    assert taken == [2]  # the small one is as without torch


def test_a_product_that_fails_leaves_the_threads_as_they_were(two_threads):
    with pytest.raises(RuntimeError):
        TorchOps().gemm(random(3, 4), random(5, 6))
    assert torch.get_num_threads() == 2


def ops_of(nlp, name):
    return {type(node.ops) for node in nlp.get_pipe(name).model.walk()}


def initialized_pipeline(tiny_weights):
    nlp = spacy.blank("en")
    bilm = {"@architectures": "spacy_elmo.BiLM.v1", "weights": str(tiny_weights)}
    nlp.add_pipe("elmo", config={"model": bilm})
    tok2vec = {"@architectures": "spacy_elmo.ELMoListener.v1"}
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}
    nlp.add_pipe("tagger", config={"model": tagger})
    nlp.add_pipe("textcat")
    doc = nlp.make_doc("Dogs bark")
    annotations = {"tags": ["N", "V"], "cats": {"a": 1.0, "b": 0.0}}
    nlp.initialize(lambda: [Example.from_dict(doc, annotations)])
    return nlp


def test_a_component_that_listens_multiplies_by_torch(tiny_weights):
    with use_ops("numpy"):
        nlp = initialized_pipeline(tiny_weights)
        assert ops_of(nlp, "tagger") == {TorchOps}
        assert ops_of(nlp, "textcat") == {NumpyOps}
        assert type(get_current_ops()) is NumpyOps


def test_ops_that_somebody_chose_stay(tiny_weights):
    with use_ops("numpy", use_blis=False):
        nlp = initialized_pipeline(tiny_weights)
    assert ops_of(nlp, "tagger") == {NumpyOps}
