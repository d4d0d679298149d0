import json
import os
import re
import shutil
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
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


def pack(path, *files):
    """A zip of files, each a path or a pair of the name inside and a path."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            name, source = file if isinstance(file, tuple) else (file.name, file)
            archive.write(source, name)
    return path


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


def test_options_are_those_of_the_file(tiny_weights):
    options = BiLM.from_path(tiny_weights).options
    lstm, cnn = options.lstm, options.char_cnn
    assert (lstm.dim, lstm.projection_dim, lstm.n_layers) == (12, 6, 2)
    assert (lstm.cell_clip, lstm.proj_clip) == (3, 3)
    assert lstm.use_skip_connections is True
    assert [tuple(pair) for pair in cnn.filters] == [(1, 3), (2, 4), (3, 5)]
    assert (cnn.activation, cnn.embedding_dim, cnn.n_highway) == ("relu", 4, 2)
    assert (cnn.n_characters, cnn.max_characters_per_token) == (262, 50)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_path_may_be_a_string(as_text, tiny_weights):
    path = str(tiny_weights) if as_text else tiny_weights
    assert BiLM.from_path(path).options.lstm.dim == 12


@pytest.mark.parametrize(
    "options_name, weights_name",
    [
        ("options.json", "weights.hdf5"),
        ("options.json", "model.hdf5"),
        ("elmo_2x6_12_options.json", "elmo_2x6_12_weights.hdf5"),
    ],
)
@pytest.mark.parametrize("form", ["directory", "zip", "hdf5"])
def test_every_form_of_a_model_is_read(
    form, options_name, weights_name, model, tiny_weights
):
    options = (model / "options.json").rename(model / options_name)
    weights = (model / "weights.hdf5").rename(model / weights_name)
    others = [model / "vocab.txt", model / "README", model / "meta.json"]
    for other in others:  # as the NLPL repository packs them
        other.write_text("<S>\n</S>\n<UNK>\n", encoding="utf8")
    path = {"directory": model, "hdf5": weights}.get(form)
    path = path or pack(model.parent / "193.zip", options, weights, *others)
    assert_same_model(BiLM.from_path(path), BiLM.from_path(tiny_weights))


def test_an_hdf5_file_takes_the_options_with_its_own_prefix(
    model, make_options, tmp_path
):
    options = make_options(dim=10)
    other = write_weights(tmp_path / "other", options, random_weights(options))
    for prefix, source in (("small", model), ("large", other)):
        for name in ("options.json", "weights.hdf5"):
            shutil.copy(source / name, tmp_path / f"{prefix}_{name}")
    for prefix, dim in (("small", 12), ("large", 10)):
        bilm = BiLM.from_path(tmp_path / f"{prefix}_weights.hdf5")
        assert bilm.options.lstm.dim == dim


def test_groups_beyond_the_bilm_are_ignored(model, tiny_weights):
    # The pretrainer's softmax, and bilm-tf's table of cached tokens
    with h5py.File(model / "weights.hdf5", "a") as file:
        file["softmax/W"] = np.ones((7, 6), "float32")
        file["softmax/b"] = np.full(7, np.nan, "float32")
        file["embedding"] = np.ones((7, 6), "float32")
    assert_same_model(BiLM.from_path(model), BiLM.from_path(tiny_weights))


def test_keys_beyond_the_bilm_are_ignored(model, tiny_weights):
    options = json.loads((model / "options.json").read_text(encoding="utf8"))
    # A training run's options.json, as bilm-tf leaves it
    options |= {"bidirectional": True, "dropout": 0.1, "n_tokens_vocab": 7}
    options["lstm"]["note"] = options["char_cnn"]["note"] = "mine"
    (model / "options.json").write_text(json.dumps(options), encoding="utf8")
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


@pytest.mark.parametrize("name", ["absent", "absent.zip", "absent.hdf5"])
def test_a_missing_file_is_named(name, tmp_path):
    with pytest.raises((OSError, ValueError), match=re.escape(name)):
        BiLM.from_path(tmp_path / name)


@pytest.mark.parametrize("form", ["directory", "hdf5"])
@pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
def test_a_missing_half_is_an_error_that_names_the_place(form, name, model):
    (model / name).unlink()
    path = model if form == "directory" else model / "weights.hdf5"
    with pytest.raises((OSError, ValueError), match=re.escape(path.name)):
        BiLM.from_path(path)


def cut(content):
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    "breaking",
    [
        lambda content: b"",
        lambda content: b"version https://git-lfs.github.com/spec/v1\n",
        lambda content: b"\x89PNG" + content[4:],
        lambda content: content[:20],
        cut,
        lambda content: content[:-1],
    ],
    ids=["empty", "not HDF5", "other magic", "header only", "half", "last byte"],
)
@pytest.mark.parametrize("form", ["directory", "hdf5", "zip"])
def test_a_weights_file_that_is_no_whole_hdf5_is_named(form, breaking, model):
    weights = model / "weights.hdf5"
    weights.write_bytes(breaking(weights.read_bytes()))
    path = {"directory": model, "hdf5": weights}.get(form)
    path = path or pack(model.parent / "193.zip", *model.iterdir())
    message = message_of(path)
    assert "weights.hdf5" in message
    if form == "zip":
        assert "193.zip" in message


@pytest.mark.parametrize("breaking", [lambda content: b"no zip", cut])
def test_a_zip_that_is_no_whole_zip_is_named(breaking, model):
    path = pack(model.parent / "193.zip", *model.iterdir())
    path.write_bytes(breaking(path.read_bytes()))
    assert "193.zip" in message_of(path)


@pytest.mark.parametrize("place", ["../", "/tmp/", "a/../../", "C:/", "..\\"])
def test_a_zip_that_points_out_of_itself_is_refused(place, model):
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("options.json", "weights.hdf5"):
            info = zipfile.ZipInfo(place + name)
            archive.writestr(info, (model / name).read_bytes())
    message = message_of(path)
    assert "193.zip" in message and "ELMO012" in message


def test_a_zip_whose_weights_would_grow_is_refused_unread(model):
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(model / "options.json", "options.json")
        with archive.open("weights.hdf5", "w") as file:
            for _ in range(80):
                # Every so often something that does not shrink
                file.write(os.urandom(20_000) + bytes(1_000_000))
    message = message_of(path)
    assert "193.zip" in message and "ELMO012" in message and "would grow" in message


@pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
def test_a_zip_that_holds_more_than_it_says_is_not_inflated(name, model):
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in ("options.json", "weights.hdf5"):
            content = (model / file).read_bytes()
            archive.writestr(file, content + bytes(50_000_000) * (file == name))
        says = archive.getinfo(name)
        said, says.file_size = says.file_size, 1000
    assert said > 50_000_000
    tracemalloc.start()
    message = message_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "193.zip" in message
    assert peak < 10_000_000


def test_a_zip_with_names_that_are_no_text_is_named(model):
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("caf\xe9", b"")  # in UTF-8, and flagged as such
    path.write_bytes(path.read_bytes().replace(b"caf\xc3\xa9", b"caf\xe9\xff"))
    message = message_of(path)
    assert "193.zip" in message and "ELMO005" in message


@pytest.mark.parametrize("suffix", [".zip", ".ZIP"])
def test_a_suffix_may_be_in_capitals(suffix, model):
    path = pack(model.parent / f"model{suffix}", *model.iterdir())
    assert_same_model(BiLM.from_path(path), BiLM.from_path(model))


def test_a_directory_is_no_options_file(model):
    (model / "options.json").unlink()
    (model / "options.json").mkdir()
    assert "0 options files" in message_of(model)


@pytest.mark.parametrize("names", [[], ["options.json"], ["weights.hdf5"]], ids=str)
def test_a_zip_without_a_model_is_named(names, model):
    (model / "README").write_text("nothing", encoding="utf8")
    files = [model / name for name in ["README", *names]]
    assert "193.zip" in message_of(pack(model.parent / "193.zip", *files))


@pytest.mark.parametrize("form", ["directory", "zip"])
@pytest.mark.parametrize("doubled", ["weights.hdf5", "options.json", "both"])
def test_two_models_in_one_place_are_an_error(form, doubled, model):
    names = ["weights.hdf5", "options.json"] if doubled == "both" else [doubled]
    for name in names:
        shutil.copy(model / name, model / f"second_{name}")
    path = model
    if form == "zip":
        path = pack(model.parent / "193.zip", *model.iterdir())
    assert path.name in message_of(path)


@pytest.mark.parametrize("form", ["directory", "zip"])
def test_an_elmoformanylangs_model_is_told_from_ours(form, tmp_path):
    folder = tmp_path / "161"
    folder.mkdir()
    names = ["config.json", "encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"]
    for name in names:
        (folder / name).write_bytes(b"{}")
    path = pack(tmp_path / "161.zip", *folder.iterdir()) if form == "zip" else folder
    message = message_of(path)
    assert path.name in message
    assert "ELMoForManyLangs" in message
    assert "architecture" in message


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
    assert name in message


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


# What is broken: the options


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


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\x89HDF\r\n", b"[1, 2]", b"null", b'"lstm"', b"\xff\xfe{}"],
    ids=str,
)
def test_options_that_are_no_json_table_are_named(content, model):
    (model / "options.json").write_bytes(content)
    assert "options.json" in message_of(model)


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
def test_a_missing_key_is_named(key, model, make_options):
    options = table = make_options()
    *path, last = key.split(".")
    for name in path:
        table = table[name]
    del table[last]
    (model / "options.json").write_text(json.dumps(options), encoding="utf8")
    message = message_of(model)
    assert "options.json" in message
    assert last in message


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
    ids=str,
)
def test_a_wrong_option_is_named(key, value, model, make_options):
    options = json.dumps(make_options(**{key: value}))
    (model / "options.json").write_text(options, encoding="utf8")
    message = message_of(model)
    assert "options.json" in message
    assert key in message
