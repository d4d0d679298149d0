import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import spacy


@pytest.fixture
def model(tiny_weights, tmp_path):
    directory = tmp_path / "model"
    shutil.copytree(tiny_weights, directory)
    (directory / "meta.json").write_text('{"license": "CC0", "version": "1.2"}')
    return directory


def test_info_as_json(model, elmo, tiny_options, tiny_arrays):
    result = elmo("info", model, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["options"] == tiny_options
    assert (found["layers"], found["width"]) == (3, 12)
    assert found["parameters"] == sum(array.size for array in tiny_arrays.values())
    digest = hashlib.sha256((model / "weights.hdf5").read_bytes()).hexdigest()
    assert found["sha256"] == digest
    assert (found["license"], found["version"]) == ("CC0", "1.2")
    assert found["auto"] in ("float32", "bfloat16", "int8")


def test_info_as_a_table(model, elmo):
    (model / "meta.json").unlink()
    printed = elmo("info", model / "weights.hdf5").output
    for line in ("2 x 12/6", "3 of width 12", "3 of 1, 4 of 2, 5 of 3", "not given"):
        assert line in printed


def test_info_of_a_zip_is_that_of_its_contents(model, elmo, tmp_path):
    archive = shutil.make_archive(tmp_path / "model", "zip", model)
    both = [json.loads(elmo("info", p, "--json").output) for p in (archive, model)]
    assert both[0]["sha256"] == both[1]["sha256"]
    assert both[0]["options"] == both[1]["options"]


def test_info_of_a_pipeline_is_that_of_its_bilm(elmo, nlp, tmp_path):
    nlp.to_disk(tmp_path / "pipeline")
    found = json.loads(elmo("info", tmp_path / "pipeline", "--json").output)
    assert found["path"] == str(tmp_path / "pipeline" / "elmo")
    assert found["width"] == 12
    shutil.copytree(tmp_path / "pipeline" / "elmo", tmp_path / "pipeline" / "other")
    result = elmo("info", tmp_path / "pipeline")
    assert result.exit_code == 1
    assert "ELMO127" in result.text and "pipeline/other" in result.text


def test_a_file_that_macos_hides_is_no_model(elmo, nlp, tmp_path):
    nlp.to_disk(tmp_path / "out")
    (tmp_path / "out" / "._weights.hdf5").write_bytes(b"\x00\x05\x16\x07")
    assert elmo("info", tmp_path / "out").exit_code == 0


def test_the_license_of_the_weights_travels_with_a_pipeline(elmo, model, tmp_path):
    nlp = spacy.blank("xx")
    weights = {"@architectures": "spacy_elmo.BiLM.v1", "weights": str(model)}
    nlp.add_pipe("elmo", config={"model": weights})
    nlp.to_disk(tmp_path / "one")
    shutil.rmtree(model)
    spacy.load(tmp_path / "one").to_disk(tmp_path / "two")
    config = spacy.util.load_config(tmp_path / "two" / "config.cfg")
    blank = spacy.util.load_model_from_config(config)
    blank.from_bytes(spacy.load(tmp_path / "two").to_bytes()).to_disk(
        tmp_path / "three"
    )
    for name in ("one", "two", "three"):
        assert "CC0" in elmo("info", tmp_path / name).output


def test_info_of_an_installed_pipeline(elmo, nlp, tmp_path, monkeypatch):
    """What `spacy package` makes, on the path and with its metadata."""
    version, package = "1.0.0", tmp_path / "en_made"
    nlp.meta.update(lang="en", name="made", version=version)
    package.mkdir()
    nlp.to_disk(package / f"en_made-{version}")
    shutil.copy(package / f"en_made-{version}" / "meta.json", package)
    (package / "__init__.py").touch()
    metadata = tmp_path / f"en_made-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: en_made\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("en_made", "en-made"):  # as pip may write it
        result = elmo("info", name, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.output)
        assert found["path"] == str(package / f"en_made-{version}" / "elmo")


def test_the_digest_of_the_parameters_stays_when_they_are_saved(
    elmo, nlp, tiny_weights, tmp_path
):
    nlp.to_disk(tmp_path / "pipeline")
    paths = tiny_weights, tmp_path / "pipeline"
    source, saved = (json.loads(elmo("info", p, "--json").output) for p in paths)
    assert source["digest"] == saved["digest"]
    assert source["sha256"] != saved["sha256"]


def test_a_version_of_the_bundled_model_has_its_digest_in_all_releases(elmo):
    digests = {
        "0.1.0": "583b91c5dae878d8",
        "0.2.0": "49078cffdda8ac3f",
        "0.2.1": "923bb6ed69c83e6b",
    }
    found = json.loads(elmo("info", "en_elmo_sm", "--json").output)
    assert found["digest"] == digests[found["version"]]


@pytest.mark.parametrize(
    "name, problem",
    [
        ("https://x.org/a/b.hdf5", "ELMO013.*Download its files into a folder"),
        ("", "ELMO001.*No such file or directory: ''"),
        ("model/options.json", "ELMO010.*give the .hdf5 file, or the folder"),
        (".", "ELMO002.*found 0 .*Did you mean model?"),
        ("trained", "ELMO002.*found 0 .*Did you mean trained/model-best?"),
        ("unfinished", "ELMO002.*found 0 .*pretraining has not ended"),
        ("pretrained", r"ELMO002.*found 0 .*and one \*\.hdf5\.(?! )"),
        ("pipeline", "ELMO002.*found 0 .*no elmo component; a biLM inside another"),
        ("linked", "ELMO002.*found 0 .*weights.hdf5 is a link to nothing .*gone"),
    ],
)
def test_what_people_give_for_weights(model, elmo, monkeypatch, name, problem):
    monkeypatch.chdir(model.parent)
    Path("unfinished").mkdir()
    Path("linked").mkdir()
    Path("linked", "options.json").touch()
    Path("linked", "weights.hdf5").symlink_to("gone")
    Path("trained", "model-best").mkdir(parents=True)
    Path("unfinished", "checkpoint.pt").touch()
    Path("pretrained").mkdir()  # and the weights moved elsewhere
    Path("pretrained", "config.cfg").touch()
    spacy.blank("en").to_disk("pipeline")
    result = elmo("info", name)
    assert result.exit_code == 1 and re.search(problem, result.text), result.text


@pytest.mark.parametrize("damage", ["missing", "truncated", "meta"])
def test_bad_input_gets_a_message(model, elmo, damage):
    weights = model / "weights.hdf5"
    if damage == "missing":
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:2000])
    else:
        (model / "meta.json").write_text("{")
    result = elmo("info", model)
    assert result.exit_code == 1
    assert "[ELMO0" in result.text and "Traceback" not in result.text
