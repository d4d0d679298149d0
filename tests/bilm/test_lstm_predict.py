import copy
import threading
import warnings

import numpy as np
import pytest
import torch
from reference import cell_name, int8_product, lstm_layer

from spacy_elmo.bilm import BiLM, kernels
from spacy_elmo.bilm.precision import has_int8
from spacy_elmo.weights import resolve

needs_int8 = pytest.mark.skipif(
    not has_int8(torch.device("cpu")), reason="needs FBGEMM, which is for x86"
)
needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="no oneDNN in this PyTorch",
)
TEXT = """The river rose three feet overnight , and the ferry stayed in harbor .
Nobody had told the pilot .
The river fell .
Prices of wheat fell for the third month in a row , the ministry said on Monday .
Why ?"""


def use_library(monkeypatch, name):
    monkeypatch.setattr(kernels, "has_fast_onednn", lambda: name == "oneDNN")


@pytest.fixture(scope="module")
def english():
    """The bundled model, in float32 and in int8."""
    path = resolve("en_elmo_sm")
    exact, rounded = BiLM.from_path(path), BiLM.from_path(path)
    return exact, rounded.use_precision("int8")


@needs_int8
def test_threads_that_pack_weights_leave_the_warnings_of_the_process(english):
    before = list(warnings.filters), torch.backends.quantized.engine
    for _ in range(5):
        bilm = copy.deepcopy(english[0]).use_precision("int8")
        threads = [
            threading.Thread(target=bilm.encode, args=([["the", "river"]],))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (list(warnings.filters), torch.backends.quantized.engine) == before


@needs_int8
def test_int8_products_are_those_of_rounded_numbers(
    tiny_weights, tiny_options, tiny_arrays, assert_close
):
    layer = BiLM.from_path(tiny_weights).use_precision("int8").layers_of(0)[0]
    arrays = {name: values.astype("float64") for name, values in tiny_arrays.items()}
    width, dim = layer.options.projection_dim, layer.options.dim
    x = np.random.default_rng(0).normal(size=(1, width)).astype("float32")
    wanted, _, _ = lstm_layer(
        tiny_options, arrays, cell_name(0, 0), x, np.zeros(dim), np.zeros(width),
        product=int8_product,
    )  # fmt: skip
    found, _ = layer(torch.from_numpy(x), [1])
    assert_close(found.numpy(), wanted)


@needs_int8
def test_int8_stays_close_to_float32(english):
    exact, rounded = (
        np.concatenate(bilm.encode([line.split() for line in TEXT.split("\n")])[0])
        for bilm in english
    )
    norms = np.linalg.norm(exact, axis=-1) * np.linalg.norm(rounded, axis=-1)
    cosines = np.sum(exact * rounded, axis=-1) / norms
    assert (cosines.mean(axis=0) >= 0.998).all()
    assert not np.array_equal(exact, rounded)


@needs_int8
def test_a_sentence_has_the_same_vectors_alone_and_in_a_batch_in_int8(
    english, assert_close
):
    _, rounded = english
    sentences = [line.split() for line in TEXT.split("\n")]
    for batch in (sentences, sentences[::-1], 20 * sentences):
        together, _ = rounded.encode(batch)
        for words, found in zip(batch[:5], together):
            assert_close(found, rounded.encode([words])[0][0])


@needs_onednn
@pytest.mark.parametrize("n_copies", [1, 90])
def test_float32_is_the_same_by_either_library(monkeypatch, assert_close, n_copies):
    """One sentence, and so many that steps have hundreds of rows and words repeat."""
    bilm = BiLM.from_path(resolve("en_elmo_sm"))
    sentences = [line.split() for line in TEXT.split("\n")]
    if n_copies > 1:
        sentences = [[str(i), *s] for i in range(n_copies) for s in sentences]
    found = []
    for name in ("MKL", "oneDNN"):
        use_library(monkeypatch, name)
        encoded = BiLM.encode(copy.deepcopy(bilm), sentences)
        found.append(np.concatenate(encoded[0]))
    assert_close(found[1], found[0])


@needs_onednn
def test_weights_that_an_optimizer_writes_are_seen(monkeypatch, tiny_weights):
    use_library(monkeypatch, "oneDNN")
    layer = BiLM.from_path(tiny_weights).requires_grad_(True).layers_of(0)[0]
    x = torch.randn(3, layer.options.projection_dim)
    with torch.no_grad():
        before, _ = layer(x, [3])
        layer.kernel.data.mul_(2.0)
        after, _ = layer(x, [3])
        layer.requires_grad_(False)
        frozen, _ = layer(x, [3])
    assert not torch.allclose(before, after)
    torch.testing.assert_close(frozen, after)
