"""Every layer against AllenNLP itself, with its LSTM state reset before each batch.

    pip install --no-deps allennlp==2.10.1

No release of AllenNLP runs with today's PyTorch as a whole, and few of its parts
are needed here: the modules of ELMo are its own files, what they import beside those
is a mock."""

import importlib
import importlib.util
import sys
from types import ModuleType
from unittest.mock import MagicMock, patch

import pytest
import torch
from reference import random_weights, write_weights

from spacy_elmo.bilm import BiLM
from spacy_elmo.pretraining.language_model import read_softmax, write_model
from spacy_elmo.weights import en_elmo_sm

FOUND = importlib.util.find_spec("allennlp")
# Packages without what their __init__.py imports
PACKAGES = ["", ".common", ".data", ".data.token_indexers", ".modules", ".nn"]
MOCKS = [
    "common.file_utils", "common.util", "data.batch", "data.fields", "data.instance",
    "data.tokenizers", "data.tokenizers.token_class", "data.vocabulary",
    "data.token_indexers.token_indexer", "nn.initializers",
]  # fmt: skip
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


@pytest.fixture(scope="module")
def allennlp():
    """The modules `elmo` and `elmo_indexer` of AllenNLP."""
    if FOUND is None:
        pytest.skip("allennlp is not installed")
    stubs = {f"allennlp.{name}": MagicMock() for name in MOCKS}
    for name in PACKAGES:
        package = ModuleType(f"allennlp{name}")
        [root] = FOUND.submodule_search_locations
        package.__path__ = [root + name.replace(".", "/")]
        stubs[package.__name__] = package
    stubs["allennlp.common"].FromParams = object
    stubs["allennlp.common.file_utils"].cached_path = lambda path: path
    with patch.dict(sys.modules, stubs):
        yield (
            importlib.import_module("allennlp.modules.elmo"),
            importlib.import_module("allennlp.data.token_indexers.elmo_indexer"),
        )


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    """Written anew, as scripts/bundle.py does it."""
    folder, bilm = tmp_path_factory.mktemp("bundled"), BiLM.from_path(en_elmo_sm())
    softmax = read_softmax(en_elmo_sm(), bilm.options.lstm.projection_dim)
    write_model(bilm, softmax, folder, dtype="float16")
    return folder


def run_allennlp(allennlp, bilm, sentences):
    """One (n_words, L+1, width) per sentence, from the zero state."""
    elmo, indexer = allennlp
    to_ids = indexer.ELMoCharacterMapper({}).convert_word_to_char_ids
    ids = torch.zeros(len(sentences), max(map(len, sentences)), 50, dtype=torch.long)
    for row, words in zip(ids, sentences):
        row[: len(words)] = torch.tensor([to_ids(word) for word in words])
    bilm._elmo_lstm.reset_states()
    with torch.no_grad():
        layers = torch.stack(bilm(ids)["activations"], dim=2).numpy()
    return [array[1 : len(s) + 1] for array, s in zip(layers, sentences)]


@pytest.mark.parametrize("scale", [1.0, 3.0], ids=["calm", "clipped"])
@pytest.mark.parametrize("changes", [{}, SMALL], ids=["tiny", "small"])
def test_every_layer_matches_allennlp(
    changes, scale, allennlp, make_options, tmp_path, assert_close
):
    options = make_options(**changes)
    write_weights(tmp_path, options, random_weights(options, scale=scale))
    files = str(tmp_path / "options.json"), str(tmp_path / "weights.hdf5")
    theirs, ours = allennlp[0]._ElmoBiLm(*files), BiLM.from_path(tmp_path)
    for batch in BATCHES:
        wanted = run_allennlp(allennlp, theirs, batch)
        for found, layers in zip(ours.encode(batch)[0], wanted, strict=True):
            assert_close(found, layers)


def test_what_pretrain_writes_runs_there(allennlp, bundled, assert_close):
    files = str(bundled / "options.json"), str(bundled / "weights.hdf5")
    theirs, ours = allennlp[0]._ElmoBiLm(*files), BiLM.from_path(bundled)
    wanted = run_allennlp(allennlp, theirs, BATCHES[0])
    for found, layers in zip(ours.encode(BATCHES[0])[0], wanted, strict=True):
        assert_close(found, layers)
