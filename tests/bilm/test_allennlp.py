"""Every layer against AllenNLP itself, with its LSTM state reset before each batch.

    pip install --no-deps allennlp==2.10.1

No release of AllenNLP runs with today's PyTorch as a whole, and few of its parts
are needed here: see benchmarks/peers.py."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from reference import random_weights, write_weights

from spacy_elmo.bilm import BiLM
from spacy_elmo.pretraining.language_model import read_softmax, write_model
from spacy_elmo.weights import resolve

if importlib.util.find_spec("allennlp") is None:
    pytest.skip("allennlp is not installed", allow_module_level=True)

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from peers import load_allennlp  # noqa: E402

OFFICIAL_FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
SMALL = {"dim": 1024, "projection_dim": 128, "n_highway": 1,
         "filters": OFFICIAL_FILTERS, "embedding": {"dim": 16}}  # fmt: skip
BATCHES = [
    [
        "Their play opens in Boston next May :".split(),
        "She will present the record to both of her old neighbours , he says .".split(),
        ["play"],
    ],
    [["x" * 47, "x" * 48, "x" * 500, "語" * 17, "é"], ["<S>", "a", "</S>", "<UNK>"]],
]


def assert_same(weights, batches, assert_close):
    theirs, _ = load_allennlp(weights, torch.get_num_threads())
    ours = BiLM.from_path(weights)
    for batch in batches:
        for found, layers in zip(ours.encode(batch)[0], theirs(batch), strict=True):
            assert_close(found, layers)


@pytest.mark.parametrize("scale", [1.0, 3.0], ids=["calm", "clipped"])
@pytest.mark.parametrize("changes", [{}, SMALL], ids=["tiny", "small"])
def test_every_layer_matches_allennlp(
    changes, scale, make_options, tmp_path, assert_close
):
    options = make_options(**changes)
    write_weights(tmp_path, options, random_weights(options, scale=scale))
    assert_same(tmp_path, BATCHES, assert_close)


@pytest.mark.parametrize("name", ["en_elmo_sm", "en_elmo_md"])
def test_what_pretrain_writes_runs_there(name, tmp_path, assert_close):
    """Written anew, as scripts/bundle.py does it."""
    bilm = BiLM.from_path(resolve(name))
    softmax = read_softmax(resolve(name), bilm.options.lstm.projection_dim)
    write_model(bilm, softmax, tmp_path, dtype="float16")
    assert_same(tmp_path, BATCHES[:1], assert_close)
