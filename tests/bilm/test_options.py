import json
import reprlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import Options
from spacy_elmo.errors import WeightsError


def test_options_are_those_of_the_file(tiny_options):
    options = Options.from_dict(tiny_options)
    lstm, cnn = options.lstm, options.char_cnn
    assert (lstm.dim, lstm.projection_dim, lstm.n_layers) == (12, 6, 2)
    assert (lstm.cell_clip, lstm.proj_clip) == (3, 3)
    assert lstm.use_skip_connections is True
    assert [tuple(pair) for pair in cnn.filters] == [(1, 3), (2, 4), (3, 5)]
    assert (cnn.activation, cnn.embedding.dim, cnn.n_highway) == ("relu", 4, 2)
    assert (cnn.n_characters, cnn.max_characters_per_token) == (262, 50)


def test_keys_beyond_the_bilm_are_ignored(make_options):
    options = make_options()
    # A training run's options.json, as bilm-tf leaves it
    options |= {"bidirectional": True, "dropout": 0.1, "n_tokens_vocab": 7}
    options["lstm"]["note"] = options["char_cnn"]["note"] = "mine"
    assert Options.from_dict(options) == Options.from_dict(make_options())


@settings(max_examples=100, deadline=None, database=None)
@given(data=st.data())
def test_changed_bytes_are_an_error_or_valid(data, tiny_options):
    content = bytearray(json.dumps(tiny_options).encode("utf8"))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    try:
        found = Options.from_json(bytes(content), "options.json")
    except WeightsError as error:
        assert "options.json" in str(error)
    else:
        assert Options.from_json(found.to_json(), "again") == found


def message_of(text):
    """The message of the one error that reading `text` gives."""
    with pytest.raises(WeightsError) as error:
        Options.from_json(text, "somewhere/options.json")
    assert "somewhere/options.json" in str(error.value)
    return str(error.value)


def test_a_byte_order_mark_is_skipped(tiny_options):
    text = json.dumps(tiny_options).encode("utf-8-sig")
    found = Options.from_json(text, "options.json")
    assert found == Options.from_dict(tiny_options)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\x89HDF\r\n", b"[1, 2]", b"null", b'"lstm"', b"\xff\xfe{}"],
    ids=str,
)
def test_options_that_are_no_json_table_are_an_error(content):
    message_of(content)


@pytest.mark.parametrize(
    "key",
    [
        "lstm",
        "char_cnn",
        "lstm.dim",
        "lstm.projection_dim",
        "lstm.n_layers",
        "char_cnn.filters",
        "char_cnn.embedding",
        "char_cnn.embedding.dim",
    ],
)
def test_a_missing_key_is_named(key, make_options):
    options = table = make_options()
    *path, last = key.split(".")
    for name in path:
        table = table[name]
    del table[last]
    assert f"'{key}': Field required" in message_of(json.dumps(options))


@pytest.mark.parametrize(
    "key, value",
    [
        ("activation", "gelu"),
        ("activation", None),
        ("n_characters", 100),
        ("n_characters", 263),
        ("n_layers", 0),
        ("dim", -12),
        ("dim", "twelve"),
        ("projection_dim", 0),
        ("filters", []),
        ("filters", 3),
        ("filters", [[1, 3], [2]]),
        ("filters", [[0, 3]]),
        # No window of 51 fits into 50 characters
        ("filters", [[51, 3]]),
        # A word without room for a byte between its two marks
        ("max_characters_per_token", 2),
        ("n_highway", -1),
        # Counts that no dataset contradicts before they cost time or memory
        ("n_highway", 2**20),
        ("n_layers", 2**20),
        ("filters", [[1, 1]] * 100_000),
        ("max_characters_per_token", 2**20),
        ("cell_clip", 1e308),
        ("cell_clip", "three"),
        ("proj_clip", -3),
        ("embedding", 4),
        ("use_skip_connections", "false"),
    ],
    ids=reprlib.repr,
)
def test_a_wrong_option_is_named(key, value, make_options):
    assert key in message_of(json.dumps(make_options(**{key: value})))
