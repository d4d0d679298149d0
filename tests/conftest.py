import copy
from pathlib import Path

import numpy as np
import pytest
from reference import random_weights, write_weights

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
