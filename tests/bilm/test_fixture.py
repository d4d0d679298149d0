"""AllenNLP's own test data: ten batches of three sentences, run one after the other
with the LSTM state carried from batch to batch, row by row."""

import json

import h5py
import numpy as np
import pytest
from reference import reference_encode

from spacy_elmo.bilm import BiLM


@pytest.fixture(scope="module")
def allennlp(shared):
    path = shared / "fixtures" / "allennlp_tiny"
    if not path.is_dir():
        pytest.skip(f"no fixture in {path}")
    return path


@pytest.fixture(scope="module")
def batches(allennlp):
    lists = json.loads((allennlp / "sentences.json").read_text(encoding="utf8"))
    return [[line.split() for line in batch] for batch in zip(*lists, strict=True)]


@pytest.fixture(scope="module", params=["NumPy reference", "BiLM"])
def encode(request, allennlp):
    # By the file: the folder holds a second .hdf5, that of the wanted values
    if request.param == "BiLM":
        return BiLM.from_path(allennlp / "lm_weights.hdf5").encode
    options = json.loads((allennlp / "options.json").read_text(encoding="utf8"))
    with h5py.File(allennlp / "lm_weights.hdf5") as file:
        names = []
        file.visit(names.append)
        sets = [name for name in names if isinstance(file[name], h5py.Dataset)]
        arrays = {name: file[name][()] for name in sets}
    return lambda *args, **kwargs: reference_encode(options, arrays, *args, **kwargs)


def test_ten_batches_with_carried_state_match_allennlp(encode, batches, allennlp):
    state = None
    with h5py.File(allennlp / "lm_embeddings_0.hdf5") as wanted:
        assert len(batches) == len(wanted) == 10
        for i, batch in enumerate(batches):
            layers, state = encode(batch, state=state)
            # The file holds (direction, n_words, 16) of the first row's top layer
            top = np.concatenate(wanted[str(i)][()], axis=-1)
            assert layers[0].shape == (len(batch[0]), 3, 32)
            np.testing.assert_allclose(layers[0][:, -1], top, rtol=0, atol=2e-6)


def test_with_the_zero_state_only_the_first_batch_matches(encode, batches, allennlp):
    # Says that the test above tests the state
    with h5py.File(allennlp / "lm_embeddings_0.hdf5") as wanted:
        for i, batch in enumerate(batches):
            layers, _ = encode(batch)
            top = np.concatenate(wanted[str(i)][()], axis=-1)
            assert (np.abs(layers[0][:, -1] - top).max() < 2e-6) == (i == 0)
