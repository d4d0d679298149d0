"""Damaged and hostile files: a clear error or the very model that was written."""

import json

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import BiLM, Options
from spacy_elmo.bilm.official_format import ModelFiles, read_files
from spacy_elmo.errors import WeightsError

NAME = "CNN/W_cnn_0"
FUZZ = settings(max_examples=200, deadline=None, database=None)


@pytest.fixture(scope="module")
def saved(tiny_weights, tmp_path_factory):
    """A model as we write it, with its checksums."""
    directory = tmp_path_factory.mktemp("saved")
    BiLM.from_path(tiny_weights).save(directory)
    return directory


@pytest.fixture(scope="module")
def wanted(saved):  # a function, as Hypothesis prints what it is given
    return lambda: [param.numpy() for param in BiLM.from_path(saved).parameters()]


@pytest.fixture
def file(saved, tmp_path):
    """A copy to be broken, open for that; `message` reads it."""
    (tmp_path / "options.json").write_bytes((saved / "options.json").read_bytes())
    path = tmp_path / "weights.hdf5"
    path.write_bytes((saved / "weights.hdf5").read_bytes())
    with h5py.File(path, "a") as h5:
        yield h5


def message(file):
    path = file.filename
    file.close()
    with pytest.raises(WeightsError) as error:
        BiLM.from_path(path)
    assert NAME in str(error.value)
    assert "weights.hdf5" in str(error.value)
    return str(error.value)


def replace(file, data):
    del file[NAME]
    file[NAME] = data


@pytest.fixture
def foreign(file):
    """The same as somebody else wrote it, without checksums."""
    del file.attrs["crc32"]
    return file


@FUZZ
@given(data=st.data())
def test_changed_bytes_are_an_error_or_change_nothing(
    data, saved, wanted, tmp_path_factory
):
    content = bytearray((saved / "weights.hdf5").read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    if data.draw(st.integers(0, 9)) == 0:
        content = content[: data.draw(st.integers(0, len(content)))]
    path = tmp_path_factory.getbasetemp() / "fuzzed.hdf5"
    path.write_bytes(content)
    options = (saved / "options.json").read_bytes()
    try:
        found = read_files(ModelFiles("options", options, "weights", path))
    except WeightsError as error:
        assert str(error).startswith("[ELMO")
    else:
        for param, array in zip(found.parameters(), wanted(), strict=True):
            np.testing.assert_array_equal(param.numpy(), array)


@FUZZ
@given(data=st.data())
def test_changed_bytes_of_options_are_an_error_or_valid(data, saved):
    content = bytearray((saved / "options.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    try:
        found = Options.from_json(bytes(content), "options.json")
    except WeightsError as error:
        assert "options.json" in str(error)
    else:
        assert Options.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_one_number_that_changed_is_noticed(file):
    file[NAME][0, 0, 0, 0] += 1e-3
    assert "the file is damaged" in message(file)


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
def test_any_standard_number_is_read(dtype, foreign):
    path, array = foreign.filename, foreign[NAME][()]
    replace(foreign, array.astype(dtype))
    foreign.close()
    found = BiLM.from_path(path)
    np.testing.assert_allclose(
        found.encoder.conv_weight[0].numpy().transpose(2, 1, 0), array[0], rtol=1e-3
    )


def test_numbers_of_another_format_are_refused(file):
    strange = h5py.h5t.IEEE_F32LE.copy()
    strange.set_ebias(100)
    array = file[NAME][()]
    del file[NAME]
    space = h5py.h5s.create_simple(array.shape)
    h5py.h5d.create(file.id, NAME.encode(), strange, space).write(
        h5py.h5s.ALL, h5py.h5s.ALL, array
    )
    assert "not of 16, 32 or 64 bits" in message(file)


def test_a_checksum_that_is_gone_is_noticed(file):
    replace(file, file[NAME][()])
    assert "no checksum" in message(file)


def test_numbers_read_the_wrong_way_round_are_refused(foreign):
    array = np.full(foreign[NAME].shape, 0.1, dtype="<f4")
    replace(foreign, array.view(">f4").astype("<f4"))
    assert "which are no weights" in message(foreign)


@pytest.mark.parametrize("how", ["external storage", "external link", "virtual"])
def test_numbers_of_another_file_are_refused(how, file, tmp_path):
    array = file[NAME][()]
    del file[NAME]
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = array
    (tmp_path / "raw").write_bytes(array.tobytes())
    if how == "external storage":
        place = [(str(tmp_path / "raw"), 0, array.nbytes)]
        file.create_dataset(NAME, array.shape, array.dtype, external=place)
    elif how == "external link":
        file[NAME] = h5py.ExternalLink(tmp_path / "other.h5", "x")
    else:
        layout = h5py.VirtualLayout(array.shape, array.dtype)
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", array.shape)
        file.create_virtual_dataset(NAME, layout)
    message(file)


def test_a_file_that_would_grow_without_bound_is_refused(tmp_path, make_options):
    """Options and file agree on a terabyte of which nothing is there."""
    changes = {"embedding": {"dim": 2**20}, "filters": [[1, 2**16]]}
    text = json.dumps(make_options(**changes))
    (tmp_path / "options.json").write_text(text, encoding="utf8")
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file.create_dataset("char_embed", (261, 2**20), "f4", chunks=(1, 2**16))
        file.create_dataset(NAME, (1, 1, 2**20, 2**16), "f4", chunks=(1, 1, 1, 2**16))
    with pytest.raises(WeightsError, match=r"weights\.hdf5"):
        BiLM.from_path(tmp_path)


def test_a_number_too_large_for_half_precision_is_not_saved(tiny_weights, tmp_path):
    bilm = BiLM.from_path(tiny_weights)
    bilm.encoder.char_embed[0, 0] = 70000.0
    with pytest.raises(ValueError, match=r"ELMO042.*'char_embed' holds 7e\+04"):
        bilm.save(tmp_path, dtype="float16")
    assert not list(tmp_path.iterdir())
    bilm.save(tmp_path)
