"""What `make train` runs."""

import importlib.util
import shutil
from pathlib import Path

import pytest
from spacy.util import load_config, registry

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def quickstart():
    path = ROOT / "scripts" / "quickstart.py"
    spec = importlib.util.spec_from_file_location("quickstart", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_baseline_is_the_same_without_elmo(quickstart):
    path = ROOT / quickstart.CONFIG
    config = quickstart.without_elmo(load_config(path))
    assert "spacy_elmo." not in config.to_str()
    assert config["nlp"]["pipeline"] == ["tagger", "ner"]
    assert config["training"] == load_config(path)["training"]
    width = config["components"]["ner"]["model"]["tok2vec"]["encode"]["width"]
    for name in ("tagger", "ner"):
        tok2vec = config["components"][name]["model"]["tok2vec"]
        assert registry.resolve({"it": tok2vec})["it"].get_dim("nO") == width


def test_quickstart(quickstart, tiny_weights, tmp_path, monkeypatch, capfd):
    for folder in ("assets", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    steps = ["--training.max_steps", "4", "--training.eval_frequency", "2"]
    quickstart.main(["--paths.elmo", str(tiny_weights), *steps])
    printed = capfd.readouterr().out
    assert "no ELMo" in printed and "gamma" in printed
    assert "doc[3]._.elmo.shape = (3, 12)" in printed
