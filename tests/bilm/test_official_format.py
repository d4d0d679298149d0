import json
import re
import shutil

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import official_shapes, random_weights, write_weights

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import WeightsError

CELL0 = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
CELL1 = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"
SENTENCES = [["She", "saw", "a", "play"], ["<S>", "é", "x" * 60]]


@pytest.fixture
def model(tiny_weights, tmp_path):
    """A copy of the tiny biLM's directory, to be broken."""
    return shutil.copytree(tiny_weights, tmp_path / "model")


def read_arrays(path):
    arrays = {}

    def visit(name, node):
        if isinstance(node, h5py.Dataset):
            arrays[name] = node[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return arrays


def assert_same_model(found, wanted):
    pairs = zip(found.encode(SENTENCES)[0], wanted.encode(SENTENCES)[0], strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def message_of(path):
    """The message of the one error that loading `path` gives."""
    with pytest.raises(WeightsError) as error:
        BiLM.from_path(path)
    return str(error.value)


def assert_names_shape(message, shape):
    assert set(map(str, shape)) <= set(re.findall(r"\d+", message))


# What can be read


def test_a_weights_error_is_a_value_error():
    assert issubclass(WeightsError, ValueError)


def test_groups_beyond_the_bilm_are_ignored(model, tiny_weights):
    # The pretrainer's softmax, and bilm-tf's table of cached tokens
    with h5py.File(model / "weights.hdf5", "a") as file:
        file["softmax/W"] = np.ones((7, 6), "float32")
        file["softmax/b"] = np.full(7, np.nan, "float32")
        file["embedding"] = np.ones((7, 6), "float32")
    assert_same_model(BiLM.from_path(model), BiLM.from_path(tiny_weights))


# Writing


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_layers": 3, "n_highway": 0, "use_skip_connections": False},
        {"n_highway": ..., "cell_clip": ..., "proj_clip": None},
        {"dim": 6, "activation": "tanh", "max_characters_per_token": 20},
        {"filters": [[1, 2], [3, 4]], "n_highway": 1},
        {"n_characters": 261, "embedding": {"dim": 5}},
    ],
    ids=str,
)
def test_saved_weights_are_the_ones_that_were_read(
    changes, dtype, make_options, tmp_path
):
    options = make_options(**changes)
    # Values in the thousands and the thousandths: a +1 on the forget bias that is
    # added and taken off again would leave its rounding error
    arrays = random_weights(options, seed=3)
    arrays[f"{CELL0}/B"] *= np.logspace(-3, 3, arrays[f"{CELL0}/B"].size, dtype="f")
    read = BiLM.from_path(write_weights(tmp_path / "read", options, arrays, dtype))
    read.save(tmp_path / "saved")
    found = read_arrays(tmp_path / "saved" / "weights.hdf5")
    wanted = read_arrays(tmp_path / "read" / "weights.hdf5")
    assert {n: a.shape for n, a in found.items()} == official_shapes(options)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], name)
    again = BiLM.from_path(tmp_path / "saved")
    assert again.options == read.options
    assert_same_model(again, read)


def test_saved_options_are_official(tiny_options, tiny_weights, tmp_path):
    BiLM.from_path(tiny_weights).save(tmp_path)
    found = json.loads((tmp_path / "options.json").read_text(encoding="utf8"))
    for table in ("lstm", "char_cnn"):
        assert tiny_options[table].items() <= found[table].items()


def test_weights_can_be_saved_in_half_the_bytes(tiny_weights, tmp_path):
    BiLM.from_path(tiny_weights).save(tmp_path, dtype="float16")
    found = read_arrays(tmp_path / "weights.hdf5")
    for name, wanted in read_arrays(tiny_weights / "weights.hdf5").items():
        # Biases as float32: AllenNLP adds to them in the precision of the file.
        bias = name.endswith("/B")
        assert found[name].dtype == (np.float32 if bias else np.float16)
        np.testing.assert_array_equal(found[name], wanted.astype("float16"), name)


def test_a_model_can_be_saved_over_the_one_it_was_read_from(model, tiny_weights):
    bilm = BiLM.from_path(model)
    bilm.save(model)
    bilm.save(model)
    assert_same_model(bilm, BiLM.from_path(tiny_weights))
    assert_same_model(BiLM.from_path(model), BiLM.from_path(tiny_weights))


# What is broken: the file itself


@pytest.mark.parametrize(
    "breaking",
    [
        lambda content: b"",
        lambda content: b"version https://git-lfs.github.com/spec/v1\n",
        lambda content: b"\x89PNG" + content[4:],
        lambda content: content[:20],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
    ],
    ids=["empty", "not HDF5", "other magic", "header only", "half", "last byte"],
)
def test_a_weights_file_that_is_no_whole_hdf5_is_named(breaking, model):
    weights = model / "weights.hdf5"
    weights.write_bytes(breaking(weights.read_bytes()))
    assert "weights.hdf5" in message_of(model)


# What is broken: the datasets

EACH_KIND = pytest.mark.parametrize(
    "name",
    [
        "char_embed",
        "CNN/W_cnn_1",
        "CNN/b_cnn_2",
        "CNN_high_0/W_carry",
        "CNN_high_1/b_transform",
        "CNN_proj/W_proj",
        "CNN_proj/b_proj",
        f"{CELL0}/W_0",
        f"{CELL1}/B",
        f"{CELL1}/W_P_0",
    ],
)


@EACH_KIND
def test_a_missing_dataset_is_named(name, model):
    with h5py.File(model / "weights.hdf5", "a") as file:
        del file[name]
    message = message_of(model)
    assert "weights.hdf5" in message
    assert f"'{name}': found nothing" in message


@EACH_KIND
@pytest.mark.parametrize(
    "wrong",
    [
        lambda shape: (*shape[:-1], shape[-1] + 90),
        lambda shape: (shape[0] + 90, *shape[1:]),
        lambda shape: (1, 1, *shape),
        lambda shape: (),
    ],
    ids=["last axis", "first axis", "more axes", "no axes"],
)
def test_a_wrong_shape_is_told_with_the_right_one(name, wrong, model):
    with h5py.File(model / "weights.hdf5", "a") as file:
        wanted = file[name].shape
        del file[name]
        file[name] = np.ones(wrong(wanted), "float32")
    message = message_of(model)
    assert "weights.hdf5" in message
    assert name in message
    assert_names_shape(message, wanted)
    assert_names_shape(message, wrong(wanted))


@pytest.mark.parametrize("name", ["CNN_proj/W_proj", f"{CELL0}/W_0"])
def test_a_transposed_matrix_is_a_wrong_shape(name, model):
    with h5py.File(model / "weights.hdf5", "a") as file:
        values = file[name][()].T
        del file[name]
        file[name] = values
    message = message_of(model)
    assert name in message
    assert_names_shape(message, values.shape)


@EACH_KIND
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_named(name, value, model):
    with h5py.File(model / "weights.hdf5", "a") as file:
        file[name][..., -1] = value
    message = message_of(model)
    assert "weights.hdf5" in message
    assert name in message


@pytest.mark.parametrize("content", ["group", "text"])
def test_a_dataset_without_numbers_is_named(content, model):
    with h5py.File(model / "weights.hdf5", "a") as file:
        del file["char_embed"]
        if content == "group":
            file.create_group("char_embed")
        else:
            file["char_embed"] = np.full((261, 4), b"x")
    message = message_of(model)
    assert "weights.hdf5" in message
    assert "char_embed" in message


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"n_layers": 3}, "Cell2"),
        ({"n_layers": 1}, "Cell1|n_layers"),
        ({"n_highway": 3}, "CNN_high_2"),
        ({"n_highway": 1}, "CNN_high_1|n_highway"),
        ({"n_highway": 0}, "CNN_high_[01]|n_highway"),
        ({"dim": 24}, "LSTMCell"),
        ({"dim": 6}, "LSTMCell"),
        ({"projection_dim": 7}, "CNN_proj|LSTMCell"),
        # 12 filters and a projection of 12: CNN_proj is there without need
        ({"projection_dim": 12}, "CNN_proj|LSTMCell"),
        # A size to be refused before anything is allocated for it
        ({"dim": 2**20, "projection_dim": 2**20}, "CNN_proj|LSTMCell|dim"),
        ({"embedding": {"dim": 5}}, "char_embed|W_cnn"),
        ({"filters": [[1, 3], [2, 4]]}, "CNN"),
        ({"filters": [[1, 3], [2, 4], [4, 5]]}, "CNN/W_cnn_2"),
        ({"filters": [[1, 3], [2, 4], [3, 5], [4, 6]]}, "CNN"),
    ],
    ids=str,
)
def test_options_that_contradict_the_weights_are_an_error(
    changes, told, model, make_options
):
    options = json.dumps(make_options(**changes))
    (model / "options.json").write_text(options, encoding="utf8")
    message = message_of(model)
    assert model.name in message
    assert re.search(told, message)


# What is broken: single bytes. What we write has checksums throughout.

NAME = "CNN/W_cnn_0"


@pytest.fixture(scope="module")
def saved(tiny_weights, tmp_path_factory):
    """A model as we write it."""
    directory = tmp_path_factory.mktemp("saved")
    BiLM.from_path(tiny_weights).save(directory)
    return directory


@settings(max_examples=80, deadline=None, database=None)
@given(data=st.data())
def test_changed_bytes_are_an_error_or_change_nothing(data, saved, tmp_path_factory):
    content = bytearray((saved / "weights.hdf5").read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    if data.draw(st.integers(0, 9)) == 0:
        content = content[: data.draw(st.integers(0, len(content)))]
    directory = tmp_path_factory.getbasetemp() / "fuzzed"
    directory.mkdir(exist_ok=True)
    shutil.copy(saved / "options.json", directory)
    (directory / "weights.hdf5").write_bytes(content)
    try:
        found = BiLM.from_path(directory)
    except WeightsError as error:
        assert str(error).startswith("[ELMO")
    else:
        wanted = BiLM.from_path(saved)
        for param, other in zip(found.parameters(), wanted.parameters(), strict=True):
            assert param.equal(other)


def test_one_number_that_changed_is_noticed(saved, tmp_path):
    content = bytearray((saved / "weights.hdf5").read_bytes())
    with h5py.File(saved / "weights.hdf5") as file:
        content[file[NAME].id.get_chunk_info(0).byte_offset] ^= 1
    shutil.copy(saved / "options.json", tmp_path)
    (tmp_path / "weights.hdf5").write_bytes(content)
    message = message_of(tmp_path)
    assert "weights.hdf5" in message and NAME in message
    assert "the file is damaged" in message


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
def test_any_standard_number_is_read(dtype, model):
    with h5py.File(model / "weights.hdf5", "a") as file:
        array = file[NAME][()]
        del file[NAME]
        file[NAME] = array.astype(dtype)
    found = BiLM.from_path(model).encoder.conv_weight[0].numpy()
    np.testing.assert_allclose(found.transpose(2, 1, 0), array[0], rtol=1e-3)


@pytest.mark.parametrize("how", ["external storage", "external link", "virtual"])
def test_numbers_of_another_file_are_refused(how, model, tmp_path):
    other = tmp_path / "other.h5"
    with h5py.File(model / "weights.hdf5", "a") as file:
        array = file[NAME][()]
        del file[NAME]
        with h5py.File(other, "w") as elsewhere:
            elsewhere["x"] = array
        if how == "external storage":
            (tmp_path / "raw").write_bytes(array.tobytes())
            place = [(str(tmp_path / "raw"), 0, array.nbytes)]
            file.create_dataset(NAME, array.shape, array.dtype, external=place)
        elif how == "external link":
            file[NAME] = h5py.ExternalLink(other, "x")
        else:
            source = h5py.VirtualLayout(array.shape, array.dtype)
            source[:] = h5py.VirtualSource(other, "x", array.shape)
            file.create_virtual_dataset(NAME, source)
    message = message_of(model)
    assert "weights.hdf5" in message and NAME in message


def test_a_file_that_would_grow_without_bound_is_refused(tmp_path, make_options):
    """Options and file agree on a terabyte of which nothing is there."""
    changes = {"embedding": {"dim": 2**20}, "filters": [[1, 2**16]]}
    text = json.dumps(make_options(**changes))
    (tmp_path / "options.json").write_text(text, encoding="utf8")
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file.create_dataset("char_embed", (261, 2**20), "f4", chunks=(1, 2**16))
        file.create_dataset(NAME, (1, 1, 2**20, 2**16), "f4", chunks=(1, 1, 1, 2**16))
    assert "weights.hdf5" in message_of(tmp_path)


def test_a_number_too_large_for_half_precision_is_not_saved(tiny_weights, tmp_path):
    bilm = BiLM.from_path(tiny_weights)
    bilm.encoder.char_embed[0, 0] = 70000.0
    with pytest.raises(ValueError, match=r"ELMO042.*'char_embed' has 7e\+04"):
        bilm.save(tmp_path, dtype="float16")
    assert not list(tmp_path.iterdir())
    bilm.save(tmp_path)


def test_a_diverged_bilm_is_not_saved(tiny_weights, tmp_path):
    bilm = BiLM.from_path(tiny_weights)
    bilm.encoder.char_embed[0, 0] = float("nan")
    for dtype in ("float32", "float16"):
        with pytest.raises(ValueError, match="ELMO044.*'char_embed' .*has diverged"):
            bilm.save(tmp_path, dtype=dtype)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_weights_are_float32_whatever_torch_makes_otherwise(tiny_weights, dtype):
    wanted = BiLM.from_path(tiny_weights).state_dict()
    torch.set_default_dtype(dtype)
    try:
        found = BiLM.from_path(tiny_weights).state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
    for name, weight in wanted.items():
        assert torch.equal(found[name], weight) and found[name].dtype == torch.float32


def test_weights_that_were_read_for_inference_can_be_trained(tiny_weights):
    with torch.inference_mode():
        bilm = BiLM.from_path(tiny_weights)
    assert not any(weight.is_inference() for weight in bilm.parameters())
