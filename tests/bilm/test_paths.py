import os
import re
import shutil
import tracemalloc
import zipfile

import pytest

from spacy_elmo.bilm import BiLM, paths
from spacy_elmo.bilm.paths import find_files
from spacy_elmo.errors import WeightsError


@pytest.fixture
def model(tiny_weights, tmp_path):
    """A copy of the tiny biLM's directory, to be broken."""
    return shutil.copytree(tiny_weights, tmp_path / "model")


def pack(path, *contents):
    """A zip of files, each a path or a pair of the name inside and a path."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in contents:
            name, source = file if isinstance(file, tuple) else (file.name, file)
            archive.write(source, name)
    return path


def message_of(path):
    """The message of the one error that loading `path` gives."""
    with pytest.raises(WeightsError) as error:
        BiLM.from_path(path)
    return str(error.value)


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
    found = BiLM.from_path(path)
    wanted = BiLM.from_path(tiny_weights)
    for param, other in zip(found.parameters(), wanted.parameters(), strict=True):
        assert param.equal(other)


def test_an_hdf5_file_takes_the_options_with_its_own_prefix(model, tmp_path):
    for prefix in ("small", "large"):
        for name in ("options.json", "weights.hdf5"):
            shutil.copy(model / name, tmp_path / f"{prefix}_{name}")
    for prefix in ("small", "large"):
        found = find_files(tmp_path / f"{prefix}_weights.hdf5")
        assert found.options_name == str(tmp_path / f"{prefix}_options.json")


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


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_zip_that_is_no_whole_zip_is_named(share, model):
    path = pack(model.parent / "193.zip", *model.iterdir())
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert "193.zip" in message_of(path)


def test_broken_weights_in_a_zip_are_named_with_it(model):
    (model / "weights.hdf5").write_bytes(b"nothing")
    message = message_of(pack(model.parent / "193.zip", *model.iterdir()))
    assert "193.zip" in message and "weights.hdf5" in message


def test_a_zip_may_name_its_files_from_here(model, tiny_weights):
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("options.json", "weights.hdf5"):
            archive.writestr(f"./{name}", (model / name).read_bytes())
    assert BiLM.from_path(path).digest() == BiLM.from_path(tiny_weights).digest()


def test_a_zip_whose_weights_would_grow_is_refused_unread(model, monkeypatch):
    monkeypatch.setattr(paths, "SMALL_BYTES", 1 << 16)
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(model / "options.json", "options.json")
        with archive.open("weights.hdf5", "w") as file:
            for _ in range(10):
                # Every so often something that does not shrink
                file.write(os.urandom(2_000) + bytes(100_000))
    message = message_of(path)
    assert "193.zip" in message and "ELMO012" in message and "would grow" in message


@pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
@pytest.mark.parametrize("says", [{"file_size": 1000}, {"compress_size": 1 << 40}])
def test_a_zip_that_holds_more_than_it_says_is_not_inflated(
    name, says, model, monkeypatch
):
    monkeypatch.setattr(paths, "SMALL_BYTES", 1_000_000)
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in ("options.json", "weights.hdf5"):
            content = (model / file).read_bytes()
            archive.writestr(file, content + bytes(10_000_000) * (file == name))
        info = archive.getinfo(name)
        assert info.file_size > 10_000_000
        for key, value in says.items():
            setattr(info, key, value)
    tracemalloc.start()
    message = message_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "193.zip" in message
    assert peak < 3_000_000


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_of_another_method_is_refused_unread(model, method):
    """Of these, zipfile inflates whole chunks: 2 GB, where 1,000 bytes were asked."""
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in model.iterdir():
            archive.write(file, file.name)
    message = message_of(path)
    assert "193.zip" in message and "neither stored nor deflated" in message


def test_a_zip_with_names_that_are_no_text_is_named(model):
    path = model.parent / "193.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("caf\xe9", b"")  # in UTF-8, and flagged as such
    path.write_bytes(path.read_bytes().replace(b"caf\xc3\xa9", b"caf\xe9\xff"))
    message = message_of(path)
    assert "193.zip is not a readable zip archive" in message


@pytest.mark.parametrize("suffix", [".zip", ".ZIP"])
def test_a_suffix_may_be_in_capitals(suffix, model):
    path = pack(model.parent / f"model{suffix}", *model.iterdir())
    assert find_files(path).weights_name == f"{path}:weights.hdf5"


def test_a_directory_is_no_options_file(model):
    (model / "options.json").unlink()
    (model / "options.json").mkdir()
    assert "0 options files" in message_of(model)


@pytest.mark.parametrize("names", [[], ["options.json"], ["weights.hdf5"]], ids=str)
def test_a_zip_without_a_model_is_named(names, model):
    (model / "README").write_text("nothing", encoding="utf8")
    contents = [model / name for name in ["README", *names]]
    assert "193.zip" in message_of(pack(model.parent / "193.zip", *contents))


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


def test_a_checkpoint_beside_two_models_is_no_reason(model):
    (model / "checkpoint.pt").touch()
    (model / "layers.hdf5").touch()
    assert "has not ended" not in message_of(model)


@pytest.mark.parametrize("form", ["directory", "zip", "hdf5"])
def test_what_macos_leaves_beside_each_file_is_no_model(form, model):
    for name in ("options.json", "weights.hdf5"):
        (model / f"._{name}").write_bytes(b"Mac OS X")
    path = {"directory": model, "hdf5": model / "weights.hdf5"}.get(form)
    path = path or pack(model.parent / "193.zip", *model.iterdir())
    assert BiLM.from_path(path).options.lstm.dim == 12


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
