import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_elmo.bilm import batching
from spacy_elmo.bilm.batching import make_batches, make_reading

# Few words, so that many sentences begin alike
word = st.integers(0, 2)
sentence = st.lists(word, min_size=1, max_size=7)


def lay_out(sentences, share=True):
    ordered = sorted(sentences, key=len, reverse=True)
    return ordered, make_reading(ordered, share)


def read(reading, n_rows):
    """What an LSTM would have read at each place, and in the end in each row."""
    state, seen = [()] * n_rows, []
    ends = np.cumsum(reading.sizes)
    for t, moves in enumerate(reading.moves):
        for start, rows in moves:
            state[start : start + len(rows)] = [state[r] for r in rows]
        if t < len(ends):
            words = reading.inputs[ends[t] - reading.sizes[t] : ends[t]]
            state[: len(words)] = [s + (w,) for s, w in zip(state, words)]
            seen += state[: len(words)]
    return seen, state


@pytest.mark.parametrize("share", [True, False])
@given(sentences=st.lists(sentence, min_size=1, max_size=12))
def test_each_word_is_read_after_the_words_before_it(sentences, share):
    ordered, reading = lay_out(sentences, share)
    seen, state = read(reading, len(ordered))
    for s, places in zip(ordered, reading.places, strict=True):
        wanted = [tuple(s[: i + 1]) for i in range(len(s))]
        assert [seen[place] for place in places] == wanted
    assert state == [tuple(s) for s in ordered]


@given(sentences=st.lists(sentence, min_size=1, max_size=12))
def test_what_sentences_begin_with_alike_is_read_once(sentences):
    _, reading = lay_out(sentences)
    beginnings = {tuple(s[: i + 1]) for s in sentences for i in range(len(s))}
    assert len(reading.inputs) == sum(reading.sizes) == len(beginnings)


def test_rows_that_share_nothing_never_move():
    _, reading = lay_out([[1, 2, 3], [2, 2], [3, 2]])
    assert reading.sizes == [3, 3, 1]
    assert not any(reading.moves)
    _, reading = lay_out([[1, 2, 3], [1, 2], [1, 2]], share=False)
    assert reading.sizes == [3, 3, 1]
    assert not any(reading.moves)


def test_the_boundary_is_read_once_and_the_other_one_only_for_the_state():
    sentences = [[5, 6], [7, 8, 9], [], [5, 8]]
    (batch,) = make_batches(sentences, 100)
    assert batch.order == [1, 0, 3]
    assert batch.rows.tolist() == [7, 8, 9, 5, 6, 5, 8]
    forward, backward = batch.readings
    # <S>, then the first words, of which there are two, and so on
    assert forward.sizes == [1, 2, 3, 1]
    assert forward.inputs.tolist() == [0, 7, 5, 8, 6, 8, 9]
    assert backward.sizes == [1, 3, 3, 1]
    assert backward.inputs.tolist() == [1, 9, 6, 8, 8, 5, 5, 7]
    (closed,) = make_batches(sentences, 100, share=False, closed=True)
    assert [sum(reading.sizes) for reading in closed.readings] == [13, 13]


def test_the_example_in_the_docstring():
    found = doctest.testmod(batching)
    assert found.attempted and not found.failed
