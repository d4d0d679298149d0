import numpy as np
import pytest
import torch
from reference import cell_name, int8_product, lstm_layer

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.precision import has_int8
from spacy_elmo.weights import resolve

pytestmark = pytest.mark.skipif(
    not has_int8(torch.device("cpu")), reason="needs FBGEMM, which is for x86"
)
TEXT = """The river rose three feet overnight , and the ferry stayed in harbor .
Nobody had told the pilot .
The river fell .
Prices of wheat fell for the third month in a row , the ministry said on Monday .
Why ?"""


@pytest.fixture(scope="module")
def english():
    """The bundled model, in float32 and in int8."""
    path = resolve("en_elmo_sm")
    exact, rounded = BiLM.from_path(path), BiLM.from_path(path)
    return exact, rounded.use_precision("int8")


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


def test_int8_stays_close_to_float32(english):
    exact, rounded = (
        np.concatenate(bilm.encode([line.split() for line in TEXT.split("\n")])[0])
        for bilm in english
    )
    norms = np.linalg.norm(exact, axis=-1) * np.linalg.norm(rounded, axis=-1)
    cosines = np.sum(exact * rounded, axis=-1) / norms
    assert (cosines.mean(axis=0) >= 0.998).all()
    assert not np.array_equal(exact, rounded)


def test_a_sentence_has_the_same_vectors_alone_and_in_a_batch_in_int8(
    english, assert_close
):
    _, rounded = english
    sentences = [line.split() for line in TEXT.split("\n")]
    for batch in (sentences, sentences[::-1], 20 * sentences):
        together, _ = rounded.encode(batch)
        for words, found in zip(batch[:5], together):
            assert_close(found, rounded.encode([words])[0][0])
