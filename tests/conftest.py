import copy
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import spacy
from reference import random_weights, write_weights

# A script's background job ignores SIGINT, and so would the commands that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

TINY = {
    "lstm": {
        "dim": 12,
        "projection_dim": 6,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "filters": [[1, 3], [2, 4], [3, 5]],
        "activation": "relu",
        "embedding": {"dim": 4},
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


def change(options, **changes):
    """A copy with some keys changed; `...` for a value takes the key out."""
    options = copy.deepcopy(options)
    for key, value in changes.items():
        table = options["lstm" if key in options["lstm"] else "char_cnn"]
        assert key in table, key
        table[key] = value
        if value is ...:
            del table[key]
    return options


@pytest.fixture(scope="session")
def assert_close():
    """Same shape, and every value within the tolerance times max(1, |value|)."""

    def check(found, wanted, tolerance=1e-5):
        assert found.shape == wanted.shape
        error = np.abs(found - wanted) / np.maximum(1, np.abs(wanted))
        assert error.max(initial=0.0) <= tolerance  # NaN fails too

    return check


@pytest.fixture
def fast_bfloat16(monkeypatch):
    """bfloat16 is taken for fast: it is right on every processor."""
    monkeypatch.setattr("spacy_elmo.bilm.precision.has_fast_bfloat16", lambda _: True)


@pytest.fixture(scope="session")
def shared():
    """Reference data that is not part of the project: a folder beside the checkout."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip(f"no reference data in {path}")
    return path


@pytest.fixture(scope="session")
def make_options():
    """make_options(n_layers=3, cell_clip=...) -> the dict of an options.json"""
    return lambda **changes: change(TINY, **changes)


@pytest.fixture(scope="session")
def tiny_options():
    return change(TINY)


@pytest.fixture(scope="session")
def tiny_arrays():
    return random_weights(TINY)


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory, tiny_options, tiny_arrays):
    """A directory with the options.json and weights.hdf5 of a tiny random biLM."""
    directory = tmp_path_factory.mktemp("weights") / "tiny"
    return write_weights(directory, tiny_options, tiny_arrays)


@pytest.fixture(scope="session")
def calm_weights(tmp_path_factory):
    """As tiny_weights, but small enough that the LSTMs do not amplify what float32
    rounds off: for comparisons over long sentences."""
    directory = tmp_path_factory.mktemp("weights") / "calm"
    return write_weights(directory, TINY, random_weights(TINY, seed=2, scale=1.0))


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory):
    """As tiny_weights, of another geometry: 2 layers of width 8, not 3 of 12."""
    directory = tmp_path_factory.mktemp("weights") / "other"
    options = change(TINY, n_layers=1, projection_dim=4)
    return write_weights(directory, options, random_weights(options, seed=1))


@pytest.fixture(scope="session")
def bilm_config(tiny_weights):
    """bilm_config(weights=...) -> the config of spacy_elmo.BiLM.v1"""

    def make(weights=tiny_weights, **arguments):
        name = "spacy_elmo.BiLM.v1"
        return {"@architectures": name, "weights": str(weights), **arguments}

    return make


@pytest.fixture
def nlp(bilm_config):
    """A pipeline of nothing but `elmo`, on tiny weights."""
    nlp = spacy.blank("xx")  # no exceptions for the tokenizer to load
    nlp.add_pipe("elmo", config={"model": bilm_config()})
    return nlp


@pytest.fixture
def mapped(monkeypatch):
    """Of each temporary folder, when it is removed, the files that are still mapped:
    Windows would refuse to remove them."""
    found, cleanup = [], TemporaryDirectory.cleanup

    def look(folder):
        maps = Path("/proc/self/maps")
        lines = maps.read_text().splitlines() if maps.is_file() else []
        found.append([line for line in lines if folder.name in line])
        cleanup(folder)

    monkeypatch.setattr(TemporaryDirectory, "cleanup", look)
    return found
