"""The warm initial state: the mean of the states after a sentence."""

import h5py
import numpy as np
import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.files import find_files
from spacy_elmo.bilm.model import BiLMState
from spacy_elmo.bilm.official_format import write_warm
from spacy_elmo.bilm.warm import WARM_UP, mean_state
from spacy_elmo.errors import WeightsError

SENTENCES = [[f"w{i % 7}", "plays", *["on"] * (i % 3)] for i in range(3 * WARM_UP)]


@pytest.fixture
def warmed(tiny_weights, tmp_path):
    bilm = BiLM.from_path(tiny_weights)
    state = mean_state(bilm, SENTENCES, n_rows=2)
    write_warm(find_files(tiny_weights), state, tmp_path / "warm")
    return BiLM.from_path(tmp_path / "warm")


def test_it_is_the_mean_over_what_carried_reading_ends_with(tiny_weights):
    bilm = BiLM.from_path(tiny_weights)
    length = len(SENTENCES) // 2
    ends = []
    for row in (SENTENCES[:length], SENTENCES[length:]):
        state = None
        for i, sentence in enumerate(row):
            _, state = bilm.encode([sentence], state)
            if i >= WARM_UP:
                ends.append(state)
    found = mean_state(bilm, SENTENCES, n_rows=2)
    for part in ("h", "c"):
        wanted = torch.stack([getattr(state, part) for state in ends]).mean(0)
        torch.testing.assert_close(getattr(found, part), wanted, rtol=1e-4, atol=1e-6)


def test_sentences_start_from_it_when_asked(warmed, tiny_weights, assert_close):
    cold = BiLM.from_path(tiny_weights)
    sentences = SENTENCES[:5]
    for found, wanted in zip(warmed.encode(sentences)[0], cold.encode(sentences)[0]):
        np.testing.assert_array_equal(found, wanted)
    n = len(sentences)
    state = BiLMState(*(part.repeat(1, 1, n, 1) for part in warmed.warm))
    found, _ = warmed.use_warm_state().encode(sentences)
    wanted, _ = cold.encode(sentences, state)
    for a, b in zip(found, wanted):
        assert_close(a, b)
    assert not np.allclose(found[0][:, 1:], cold.encode(sentences)[0][0][:, 1:])
    # Alone as in company
    assert_close(warmed.encode([sentences[3]])[0][0], found[3])


def test_it_travels_with_the_weights(warmed, tmp_path):
    warmed.save(tmp_path / "again")
    again = BiLM.from_path(tmp_path / "again")
    for a, b in zip(again.warm, warmed.warm):
        torch.testing.assert_close(a, b)
    assert again.to(torch.device("cpu")).warm.h.device.type == "cpu"


def test_a_model_without_one_says_how_to_make_it(tiny_weights):
    with pytest.raises(ValueError, match=r"ELMO044.*spacy elmo warm"):
        BiLM.from_path(tiny_weights).use_warm_state()


def test_a_text_too_short_is_an_error(tiny_weights):
    with pytest.raises(ValueError, match=r"ELMO043.* 24 sentences.* 576 or more"):
        mean_state(BiLM.from_path(tiny_weights), SENTENCES)


def test_a_wrong_shape_is_an_error(warmed, tmp_path):
    warmed.save(tmp_path / "model")
    with h5py.File(tmp_path / "model" / "weights.hdf5", "a") as h5:
        del h5["initial_state/h"]
        del h5.attrs["crc32"]
        h5["initial_state/h"] = np.zeros((2, 2, 7), "f4")
    with pytest.raises(WeightsError, match=r"initial_state/h.*\(2, 2, 7\)"):
        BiLM.from_path(tmp_path / "model")
