import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import random_weights, reference_encode, write_weights
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from spacy_elmo.bilm import BiLM

SENTENCES = [
    "Last year Eleanor wrote a short play for Chicago .".split(),
    ["play"],
    ["", "é", "日本語", "x" * 47, "x" * 48, "x" * 49, "語" * 17, "x" * 500],
    ["\ud800", "a\udfffb", "\x00", "<S>", "</S>", "<UNK>", "play"],
    "To be , or not to be , that is the question : To be .".split(),
]

# What each case changes in the tiny options; `...` leaves the key out
CASES = {
    "official": {},
    "tanh": {"activation": "tanh"},
    "no highway": {"n_highway": 0},
    "no highway, key absent": {"n_highway": ...},
    "no highway, null": {"n_highway": None},
    "one highway": {"n_highway": 1},
    "one layer": {"n_layers": 1},
    "three layers": {"n_layers": 3},
    "no skip": {"use_skip_connections": False},
    "three layers, no skip": {"n_layers": 3, "use_skip_connections": False},
    "cell clip null": {"cell_clip": None},
    "cell clip absent": {"cell_clip": ...},
    "proj clip null": {"proj_clip": None},
    "proj clip absent": {"proj_clip": ...},
    "no clips": {"cell_clip": None, "proj_clip": None},
    "clips of zero, for AllenNLP none": {"cell_clip": 0, "proj_clip": 0},
    "tight clips": {"cell_clip": 0.5, "proj_clip": 0.25},
    # Without a projection there is no projection clip either
    "no LSTM projection": {"dim": 6, "proj_clip": 0.25},
    "no CNN projection": {"filters": [[1, 2], [3, 4]]},
    "no projections": {"filters": [[2, 6]], "dim": 6, "n_highway": 1},
    "projection wider than the cell": {"dim": 4, "projection_dim": 8},
    "unsorted and repeated filters": {"filters": [[4, 3], [1, 2], [4, 1], [7, 5]]},
    "filter as wide as the word": {"filters": [[50, 2], [49, 2]]},
    "short words": {"max_characters_per_token": 9},
    "long words": {"max_characters_per_token": 70},
    "261 characters": {"n_characters": 261},
    "wider": {
        "dim": 96,
        "projection_dim": 32,
        "embedding": {"dim": 16},
        "filters": [[1, 8], [2, 8], [3, 16], [4, 16], [5, 32], [6, 32], [7, 32]],
    },
}


@pytest.fixture(params=["float32", "bfloat16", "int8"])
def precision(request, fast_bfloat16):
    return request.param


@pytest.fixture(scope="module")
def bilm(tiny_weights):
    return BiLM.from_path(tiny_weights)


@pytest.fixture(scope="module")
def reference(tiny_options, tiny_arrays):
    def encode(sentences, state=None):
        return reference_encode(tiny_options, tiny_arrays, sentences, state)

    return encode


def random_batches(n_batches, n_rows, seed=0):
    """Batches of sentences of 1 to 12 words, so that rows never stay in order of
    length from one batch to the next."""
    rng = np.random.default_rng(seed)
    words = [word for sentence in SENTENCES for word in sentence]
    for _ in range(n_batches):
        lengths = rng.integers(1, 13, size=n_rows)
        yield [[str(w) for w in rng.choice(words, n)] for n in lengths]


# Time steps of many rows and of few are computed in different ways, and so are words
# that are read often. What sentences begin or end with alike is read once.
OTHERS = {
    "many sentences": [[f"{i}{c}" for c in "abcde"] for i in range(200)],
    "many sentences of few words": [[f"{i}", *"abc", f"{i}"] for i in range(200)],
}


WIDE_CASES = ["no LSTM projection", "three layers, no skip", "wider"]


@pytest.mark.parametrize(
    "changes, others",
    [
        *(pytest.param(CASES[name], [], id=name) for name in CASES),
        *(
            pytest.param(CASES[name], OTHERS[others], id=f"{name}, {others}")
            for name in WIDE_CASES
            for others in OTHERS
        ),
    ],
)
def test_every_layer_matches_the_reference(
    changes, others, make_options, assert_close, tmp_path
):
    options = make_options(**changes)
    arrays = random_weights(options, seed=1)
    bilm = BiLM.from_path(write_weights(tmp_path, options, arrays))
    layers, _ = bilm.encode(others + SENTENCES)
    wanted, _ = reference_encode(options, arrays, others[:1] + SENTENCES)
    for found, expected in zip(
        layers[: len(others[:1])] + layers[len(others) :], wanted, strict=True
    ):
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        assert_close(found, expected)


@pytest.mark.parametrize("seed", range(3))
def test_float16_files_hold_rounded_weights(seed, tiny_options, assert_close, tmp_path):
    arrays = random_weights(tiny_options, seed)
    path = write_weights(tmp_path, tiny_options, arrays, dtype="float16")
    rounded = {name: values.astype("float16") for name, values in arrays.items()}
    layers, _ = BiLM.from_path(path).encode(SENTENCES)
    wanted, _ = reference_encode(tiny_options, rounded, SENTENCES)
    for found, expected in zip(layers, wanted, strict=True):
        assert found.dtype == np.float32
        assert_close(found, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "tanh"},
        {"use_skip_connections": False},
        {"cell_clip": None},
        {"proj_clip": None},
        {"max_characters_per_token": 9},
    ],
    ids=str,
)
def test_the_comparison_would_notice_an_ignored_option(
    changes, make_options, tiny_arrays, reference
):
    layers, _ = reference(SENTENCES)
    others, _ = reference_encode(make_options(**changes), tiny_arrays, SENTENCES)
    pairs = zip(layers, others, strict=True)
    assert max(np.abs(a - b).max() for a, b in pairs) > 5e-3


def test_layer_zero_is_the_token_twice_and_knows_no_context(bilm, assert_close):
    layers, _ = bilm.encode([["play"], ["a", "play", "about", "a", "play"]])
    for found in layers:
        assert_close(found[:, 0, :6], found[:, 0, 6:], tolerance=0)
    alone, play = layers[0][0, 0], layers[1][:, 0]
    for row in (1, 4):
        assert_close(play[row], alone)
    upper = layers[1][[1, 4], 1:]
    assert np.abs(upper[0] - upper[1]).max() > 0.01


def test_each_direction_sees_its_own_side_only(bilm, assert_close):
    (left, right), _ = bilm.encode([["a", "play", "b"], ["a", "play", "c"]])
    # [forward; backward]: the forward half of the first two words stays
    assert_close(left[:2, :, :6], right[:2, :, :6])
    assert np.abs(left[:2, 1:, 6:] - right[:2, 1:, 6:]).max() > 0.01


# Independence: a vector is a function of its sentence


def test_a_sentence_alone_has_the_vectors_it_has_in_any_batch(bilm, assert_close):
    batch = [sentence for b in random_batches(20, 10) for sentence in b]
    together, _ = bilm.encode(batch)
    backwards, _ = bilm.encode(batch[::-1])
    for i in range(0, len(batch), 7):
        alone, _ = bilm.encode([batch[i]])
        assert_close(together[i], alone[0])
        assert_close(backwards[-1 - i], alone[0])


def test_a_sentence_has_the_same_vectors_beside_a_very_long_one(bilm, assert_close):
    alone, _ = bilm.encode(SENTENCES)
    beside, _ = bilm.encode([SENTENCES[0] * 60, *SENTENCES, SENTENCES[2] * 50])
    for a, b in zip(alone, beside[1:-1], strict=True):
        assert_close(a, b)


def test_more_sentences_than_run_at_once_keep_their_vectors_and_states(
    bilm, assert_close
):
    # More rows, words and distinct words than any bound on a block of work inside
    def batch(start):
        firsts = range(start, start + 5 * 2500, 5)
        return [[f"w{n + j}" for j in range(1 + n // 5 % 5)] for n in firsts]

    first, state = bilm.encode(batch(0))
    second, _ = bilm.encode(batch(8), state=state)
    for i in [*range(0, 2500, 97), 2498, 2499]:
        alone, state = bilm.encode([batch(0)[i]])
        assert_close(first[i], alone[0])
        alone, _ = bilm.encode([batch(8)[i]], state=state)
        assert_close(second[i], alone[0])


def test_a_state_may_be_a_plain_pair(bilm, assert_close):
    sentences = [["play"], ["a", "b"]]
    _, (h, c) = bilm.encode(sentences)
    found, _ = bilm.encode([["it"]], (h[:, :, 1:], c[:, :, 1:]))
    wanted, _ = bilm.encode([["it"], ["it"]], (h, c))
    assert_close(found[0], wanted[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_layers_are_float32_after_a_cast(dtype, tiny_weights):
    layers, _ = BiLM.from_path(tiny_weights).to(dtype).encode([["play"]])
    assert layers[0].dtype == np.float32


FORKED = """
import os, torch, spacy_elmo.bilm
torch.set_num_threads(2)
child = os.fork()
if not child:
    os._exit(torch.get_num_threads())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="not on Windows")
def test_a_forked_process_runs_one_thread():
    """With more, it would wait forever for threads that a fork does not copy."""
    assert subprocess.check_output([sys.executable, "-c", FORKED]) == b"1\n"


def test_repeated_calls_and_repeated_sentences_give_the_same(bilm, assert_close):
    first, _ = bilm.encode(SENTENCES * 2)
    second, _ = bilm.encode(SENTENCES)
    for i, found in enumerate(second):
        assert_close(first[i], first[i + len(SENTENCES)])
        assert_close(first[i], found)


# Few words, so that sentences begin, end and are alike
few = st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=5), max_size=9)


@settings(deadline=None)
@given(batch=few, following=few)
def test_sentences_alike_have_the_vectors_and_states_that_each_has_alone(
    batch, following, bilm, reference, assert_close
):
    n = min(len(batch), len(following))
    state = expected_state = None
    for part in (batch[:n], following[:n]):
        layers, state = bilm.encode(part, state)
        wanted, expected_state = reference(part, expected_state)
        for found, expected in zip(layers, wanted, strict=True):
            assert_close(found, expected)


def test_the_layers_are_the_same_without_the_state(
    precision, tiny_weights, assert_close
):
    bilm = BiLM.from_path(tiny_weights).use_precision(precision)
    index = {word: i for i, word in enumerate(["<S>", "</S>", "a", "play", "."])}
    batch = [["a", "play", "."], ["a", "."], [], ["play"], ["a", "play", "."]]
    ids = [[index[word] for word in sentence] for sentence in batch]
    layers = bilm.encode_ids(bilm.encode_words(list(index)), ids)
    wanted, _ = bilm.encode(batch)
    for found, expected in zip(layers, wanted, strict=True):
        assert_close(found, expected)


def test_a_caller_may_write_into_what_it_got(bilm, assert_close):
    first, _ = bilm.encode(SENTENCES)
    kept = [found.copy() for found in first]
    for found in first:
        found[:] = 0
    second, _ = bilm.encode(SENTENCES)
    for a, b in zip(kept, second, strict=True):
        assert_close(a, b, tolerance=0)


# State: goes in, comes out, stays nowhere


@pytest.mark.parametrize("n_rows", [1, 5])
@pytest.mark.parametrize(
    "changes", [{}, {"n_layers": 3, "use_skip_connections": False}, {"dim": 6}], ids=str
)
def test_ten_batches_with_carried_state_match_the_reference(
    n_rows, changes, make_options, assert_close, tmp_path
):
    options = make_options(**changes)
    arrays = random_weights(options, seed=2)
    bilm = BiLM.from_path(write_weights(tmp_path, options, arrays))
    state = expected_state = None
    for batch in random_batches(10, n_rows, seed=n_rows):
        layers, state = bilm.encode(batch, state=state)
        wanted, expected_state = reference_encode(
            options, arrays, batch, expected_state
        )
        for found, expected in zip(layers, wanted, strict=True):
            assert_close(found, expected)


def test_each_row_carries_its_own_state(bilm, assert_close):
    batches = list(random_batches(4, 3))
    together, state = [], None
    for batch in batches:
        layers, state = bilm.encode(batch, state=state)
        together.append(layers)
    for row in range(3):
        state = None
        for batch, layers in zip(batches, together, strict=True):
            alone, state = bilm.encode([batch[row]], state=state)
            assert_close(layers[row], alone[0])


def test_encode_does_not_change_the_state_it_is_given(bilm, assert_close):
    batches = list(random_batches(3, 4))
    _, state = bilm.encode(batches[0])
    once, _ = bilm.encode(batches[1], state=state)
    bilm.encode(batches[2], state=state)
    twice, _ = bilm.encode(batches[1], state=state)
    for a, b in zip(once, twice, strict=True):
        assert_close(a, b, tolerance=0)


def test_a_state_is_used_only_where_it_is_given(bilm, reference, assert_close):
    batch, following = random_batches(2, 3)
    _, state = bilm.encode(batch)
    carried, _ = bilm.encode(following, state=state)
    fresh, _ = bilm.encode(following)
    wanted, _ = reference(following)
    for found, expected, other in zip(fresh, wanted, carried, strict=True):
        assert_close(found, expected)
        assert np.abs(found[:, 1:] - other[:, 1:]).max() > 1e-3


def test_a_state_of_another_number_of_rows_is_refused(bilm):
    _, state = bilm.encode([["play"], ["a", "play"]])
    for batch in ([["play"]], [["play"]] * 3):
        with pytest.raises(ValueError, match="2"):
            bilm.encode(batch, state=state)


# Odd input


@pytest.mark.parametrize("sentences", ["A play .", ["A play ."]])
def test_a_string_in_place_of_words_is_refused(sentences, bilm):
    with pytest.raises(ValueError, match="words"):
        bilm.encode(sentences)


def test_iterators_are_read_once(bilm, assert_close):
    (wanted,), _ = bilm.encode([["A", "play"]])
    (found,), _ = bilm.encode(iter(words) for words in [["A", "play"]])
    assert_close(found, wanted)


def test_no_sentences_give_no_arrays(bilm):
    layers, _ = bilm.encode([])
    assert list(layers) == []


@pytest.mark.parametrize("batch", [[[]], [[], []], [[], ["play"], [], ["a", "b"]]])
def test_empty_sentences_give_no_rows_and_disturb_nobody(
    batch, bilm, reference, assert_close
):
    layers, state = bilm.encode(batch)
    wanted, _ = reference(batch)
    assert [len(found) for found in layers] == [len(words) for words in batch]
    for found, expected in zip(layers, wanted, strict=True):
        assert found.dtype == np.float32
        assert found.shape[1:] == (3, 12)
        assert_close(found, expected)
    again, _ = bilm.encode(batch, state=state)
    assert [found.shape for found in again] == [found.shape for found in layers]


def test_words_are_cut_at_48_bytes(bilm, assert_close):
    words = ["x" * n for n in (46, 47, 48, 49, 50, 500)]
    layers, _ = bilm.encode([[word] for word in words])
    for found in layers[3:]:
        assert_close(found, layers[2])
    assert np.abs(layers[1] - layers[2]).max() > 1e-4


def test_words_of_every_length_match_the_reference(bilm, reference, assert_close):
    words = ["abcdefghijklm"[n % 13 :] + "x" * n for n in range(60)] + ["y" * 500]
    layers, _ = bilm.encode([words])
    wanted, _ = reference([words])
    assert_close(layers[0], wanted[0])


def test_a_lone_surrogate_is_dropped(bilm, assert_close):
    layers, _ = bilm.encode([["\ud800", "a\udfffb"], ["", "ab"]])
    assert_close(layers[0], layers[1])


def test_the_literal_boundary_words_are_the_boundary_words(
    bilm, reference, assert_close
):
    batch = [["<S>", "play", "</S>"], ["<s>", "play", "</s>"]]
    layers, _ = bilm.encode(batch)
    wanted, _ = reference(batch)
    assert_close(layers[0], wanted[0])
    assert np.abs(layers[0][:, 0] - layers[1][:, 0]).max(axis=-1)[[0, 2]].min() > 0.01


word = st.text(st.characters(exclude_categories=[]), max_size=60)
special = st.sampled_from(["<S>", "</S>", "", "\ud800", "x" * 500])


@settings(max_examples=30, deadline=None)
@given(batch=st.lists(st.lists(word | special, max_size=6), max_size=4))
def test_any_words_match_the_reference(batch, bilm, reference, assert_close):
    layers, _ = bilm.encode(batch)
    wanted, _ = reference(batch)
    for found, expected in zip(layers, wanted, strict=True):
        assert_close(found, expected)


# Parameters, which others may write to


@pytest.fixture(params=[12, 4096], ids=["tiny", "rows kept apart"])
def wide(request, make_options, tmp_path):
    options = make_options(dim=request.param)
    arrays = random_weights(options, scale=1.0)
    return BiLM.from_path(write_weights(tmp_path, options, arrays))


def test_parameters_may_live_in_one_buffer(wide, assert_close):
    wanted, _ = wide.encode(SENTENCES)
    flat = parameters_to_vector(wide.parameters())
    vector_to_parameters(flat, wide.parameters())
    kept = flat.clone()
    for _ in range(2):
        found, _ = wide.encode(SENTENCES)
        for a, b in zip(found, wanted, strict=True):
            assert_close(a, b, tolerance=0)
    torch.testing.assert_close(flat, kept, rtol=0, atol=0)


@pytest.mark.parametrize("how", ["load_state_dict", "in place", "another buffer"])
def test_new_weights_are_used_at_once(
    how, precision, tiny_weights, calm_weights, assert_close
):
    bilm = BiLM.from_path(tiny_weights).use_precision(precision)
    other = BiLM.from_path(calm_weights).use_precision(precision)
    wanted, _ = other.encode(SENTENCES)
    bilm.encode(SENTENCES)
    if how == "load_state_dict":
        bilm.load_state_dict(other.state_dict())
    elif how == "in place":
        for mine, theirs in zip(bilm.parameters(), other.parameters()):
            mine.copy_(theirs)
    else:
        vector_to_parameters(
            parameters_to_vector(other.parameters()), bilm.parameters()
        )
    found, _ = bilm.encode(SENTENCES)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b, tolerance=0)


def test_autocast_changes_nothing(tiny_weights, precision, assert_close):
    bilm = BiLM.from_path(tiny_weights).use_precision(precision)
    sentences = [["It", "rains", "."], ["No", "."]]
    wanted, _ = bilm.encode(sentences)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = bilm.encode(sentences)
    for X, Y in zip(found, wanted, strict=True):
        assert_close(X, Y, 1e-6)


def test_a_precision_that_is_none_is_refused(tiny_weights):
    with pytest.raises(ValueError, match="ELMO038.*'bfloat16'.*not 'float16'"):
        BiLM.from_path(tiny_weights).use_precision("float16")


@pytest.mark.parametrize("name, probe", [
    ("bfloat16", "has_fast_bfloat16"), ("int8", "has_int8")
])  # fmt: skip
def test_a_precision_that_is_slow_here_is_a_warning(
    name, probe, tiny_weights, monkeypatch
):
    monkeypatch.setattr(f"spacy_elmo.bilm.precision.{probe}", lambda _: False)
    with pytest.warns(UserWarning, match=f"ELMOW002.*{name}"):
        bilm = BiLM.from_path(tiny_weights).use_precision(name)
    assert bilm.precision == "float32"


@pytest.mark.parametrize("int8, bfloat16, wanted", [
    (True, True, "int8"), (False, True, "bfloat16"), (False, False, "float32")
])  # fmt: skip
def test_auto_is_the_fastest_precision_that_this_machine_has(
    int8, bfloat16, wanted, tiny_weights, monkeypatch
):
    at = "spacy_elmo.bilm.precision"
    monkeypatch.setattr(f"{at}.has_int8", lambda _: int8)
    monkeypatch.setattr(f"{at}.has_fast_bfloat16", lambda _: bfloat16)
    bilm = BiLM.from_path(tiny_weights)
    assert bilm.use_precision("auto").precision == wanted
