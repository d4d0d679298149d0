"""A biLM as a package of its own."""

import shutil
import subprocess
import sys

import pytest
import srsly
from thinc.api import Config

from spacy_elmo.cli.inputs import read_tokenizer
from spacy_elmo.storage import hold
from spacy_elmo.weights import resolve


def install(folder, target):
    """By pip, without an index, and what a fresh Python then finds."""
    wheels = list((folder / "dist").glob("*.whl"))
    options = ["--no-index", "--no-deps", "--target", str(target)]
    pip = [sys.executable, "-m", "pip", "install", "-q", *options, *map(str, wheels)]
    subprocess.run(pip, check=True)


def test_an_installed_package_publishes_its_name(trained, elmo, tmp_path):
    """Also by a name that setuptools would take for a folder beside a package."""
    result = elmo(
        "package", trained[0], tmp_path, "--name", "news", "--license", "CC0",
        "--sources", "made-up facts", "--build", "wheel,sdist",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    folder = tmp_path / "news-0.0.0"
    assert {p.suffix for p in (folder / "dist").iterdir()} == {".whl", ".gz"}
    left = {path.name for path in folder.iterdir()}
    assert left == {"README.md", "pyproject.toml", "news", "dist"}
    install(folder, tmp_path / "elsewhere")
    (metadata,) = (tmp_path / "elsewhere").glob("*.dist-info/METADATA")
    assert "License: CC0" in metadata.read_text()
    code = (
        "import spacy; nlp = spacy.blank('en'); "
        "nlp.add_pipe('elmo', config={'model': {'weights': 'news'}}); "
        "print(nlp('The dog barks.')._.elmo.shape)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={"PYTHONPATH": str(tmp_path / "elsewhere")},
    )  # fmt: skip
    assert found.stdout == "(4, 3, 24)\n", found.stderr


def test_the_card_says_what_the_log_and_the_options_know(trained, elmo, tmp_path):
    given = ["--license", "CC0", "--sources", "made-up facts", "--build", "none"]
    assert elmo("package", trained[0], tmp_path, *given).exit_code == 0
    (folder,) = tmp_path.iterdir()
    card = (folder / "README.md").read_text()
    log = list(srsly.read_jsonl(trained[0] / "log.jsonl"))
    for part in ("en_elmo", "CC0", "made-up facts", str(round(log[-1]["average"], 2))):
        assert part in card
    module = folder / "en_elmo"
    assert srsly.read_json(module / "meta.json")["license"] == "CC0"
    # How text is tokenized stays known, and where it was does not.
    config = (module / "config.cfg").read_text()
    assert "tokenized" in config and "[paths]" not in config


def test_a_language_that_is_not_known_is_called_so(elmo, tiny_weights, tmp_path):
    given = ["--license", "CC0", "--build", "none"]
    assert elmo("package", tiny_weights, tmp_path / "out", *given).exit_code == 0
    (module,) = (tmp_path / "out").glob("*/xx_elmo")
    assert srsly.read_json(module / "meta.json")["lang"] == "xx"


def test_a_package_tokenizes_as_the_model_that_it_is_made_of(trained, elmo, tmp_path):
    folder = tmp_path / "trained"
    shutil.copytree(trained[0], folder)
    config = Config().from_disk(folder / "config.cfg")
    config["nlp"]["lang"], config["corpus"]["tokenized"] = "hu", True
    config.to_disk(folder / "config.cfg")
    given = ["--license", "CC0", "--build", "none"]
    assert elmo("package", folder, tmp_path / "out", *given).exit_code == 0
    (made,) = (tmp_path / "out").glob("*/hu_elmo")
    tokenizer = read_tokenizer(made, None, None)
    assert tokenizer.nlp_config["lang"] == "hu" and tokenizer.settings.tokenized


def test_a_meta_json_stands_before_the_log_and_options_before_it(
    trained, elmo, tmp_path
):
    meta = tmp_path / "mine.json"
    srsly.write_json(meta, {"name": "en_mine", "version": "1.2", "license": "MIT"})
    given = ["--meta-path", meta, "--build", "none", "--version", "1.3"]
    assert elmo("package", trained[0], tmp_path / "out", *given).exit_code == 0
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["en_mine-1.3"]
    again = elmo("package", trained[0], tmp_path / "out", *given)
    assert again.exit_code == 1 and "ELMO133" in again.text and "--force" in again.text
    # Also from within the package that is replaced.
    made = tmp_path / "out" / "en_mine-1.3" / "en_mine"
    assert elmo("package", made, tmp_path / "out", *given, "-f").exit_code == 0
    assert (made / "weights.hdf5").is_file()


def test_a_meta_json_of_another_shape_makes_a_card(elmo, tmp_path):
    """That of the bundled model says more, and says it otherwise."""
    folder = resolve("en_elmo_sm")
    result = elmo("package", folder, tmp_path, "--build", "none")
    assert result.exit_code == 0, result.output
    (card,) = tmp_path.glob("*/README.md")
    tokens = srsly.read_json(folder / "meta.json")["training"]["tokens"]
    assert f"{tokens:,}" in card.read_text()


def test_a_license_may_be_null(trained, elmo, tmp_path):
    meta = tmp_path / "mine.json"
    srsly.write_json(meta, {"license": None})
    result = elmo("package", trained[0], tmp_path / "out", "--meta-path", meta)
    assert result.exit_code == 1 and "ELMO137" in result.text


def test_null_in_a_meta_json_is_as_if_it_were_not_there(trained, elmo, tmp_path):
    path = tmp_path / "mine.json"
    nothing = dict.fromkeys(["name", "version", "lang", "training"])
    sources = [{"name": "Novels", "url": "", "license": "CC0"}]
    srsly.write_json(path, {"license": "CC0", **nothing, "sources": sources})
    given = ["--meta-path", path, "--build", "none"]
    result = elmo("package", trained[0], tmp_path / "out", *given)
    assert result.exit_code == 0, result.output
    card = (tmp_path / "out" / "en_elmo-0.0.0" / "README.md").read_text()
    assert " Novels " in card


def test_a_license_may_have_any_character(trained, elmo, tmp_path):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    license = '\U0001f12f "free" \\o/ \u00a9'
    given = ["--license", license, "--build", "none"]
    assert elmo("package", trained[0], tmp_path, *given).exit_code == 0
    (pyproject,) = tmp_path.rglob("pyproject.toml")
    project = tomllib.loads(pyproject.read_text(encoding="utf8"))["project"]
    assert project["license"]["text"] == license


def test_a_version_is_a_string(trained, elmo, tmp_path):
    path = tmp_path / "mine.json"
    srsly.write_json(path, {"license": "CC0", "version": 1.0})
    result = elmo("package", trained[0], tmp_path / "out", "--meta-path", path)
    assert (
        result.exit_code == 1 and "ELMO038" in result.text and "'0.1.0'" in result.text
    )


@pytest.mark.parametrize(
    "key, found", [("lang", 3), ("license", ["MIT"]), ("sources", 3), ("training", 3)]
)
def test_values_of_a_meta_json_have_their_types(trained, elmo, tmp_path, key, found):
    path = tmp_path / "mine.json"
    srsly.write_json(path, {"license": "CC0", key: found})
    result = elmo("package", trained[0], tmp_path / "out", "--meta-path", path)
    assert result.exit_code == 1 and "Traceback" not in result.text
    assert "ELMO038" in result.text and f"mine.json: {key}" in result.text


@pytest.mark.parametrize(
    "given, problem",
    [
        ([], "ELMO137"),
        (["--license", "CC0", "--name", "a-b"], "ELMO139"),
        (["--license", "CC0", "--name", "é_elmo"], "ELMO139"),
        (["--license", "CC0", "--name", "class"], "ELMO139"),
        (["--license", "CC0", "--build", "egg"], "Unknown build format: egg"),
    ],
)
def test_bad_input_gets_a_message_and_leaves_nothing(
    trained, elmo, tmp_path, given, problem
):
    result = elmo("package", trained[0], tmp_path, *given)
    assert result.exit_code == 1
    assert problem in result.text and "Traceback" not in result.text
    assert not any(path.name[0] != "." for path in tmp_path.iterdir())


def test_force_replaces_nothing_but_a_package(trained, elmo, tmp_path):
    run = tmp_path / "mine-0.0.0"
    shutil.copytree(trained[0], run)
    given = [run, tmp_path, "--name", "mine", "--license", "CC0", "--build", "none"]
    assert "ELMO133" in elmo("package", *given).text
    assert "ELMO111" in elmo("package", *given, "--force").text
    assert (run / "checkpoint.pt").is_file()
    again = [trained[0], *given[1:], "--version", "1.0.0"]
    assert elmo("package", *again).exit_code == 0
    assert elmo("package", *again, "--force").exit_code == 0


def test_two_at_once_do_not_mix(trained, elmo, tmp_path):
    with hold(tmp_path / ".en_elmo-0.0.0.lock"):
        result = elmo("package", trained[0], tmp_path, "--license", "CC0")
    assert result.exit_code == 1 and "ELMO114" in result.text


@pytest.mark.parametrize("found", ["500 million", [1]])
def test_figures_of_a_meta_json_are_numbers(trained, elmo, tmp_path, found):
    path = tmp_path / "mine.json"
    training = {"tokens": found, "seconds": None}
    srsly.write_json(path, {"license": "CC0", "training": training})
    given = ["--meta-path", path, "--build", "none"]
    result = elmo("package", trained[0], tmp_path / "out", *given)
    assert result.exit_code == 1
    assert "ELMO038" in result.text and "mine.json: training.tokens" in result.text
    srsly.write_json(path, {"license": "CC0", "training": {"seconds": None}})
    assert elmo("package", trained[0], tmp_path / "out", *given).exit_code == 0
