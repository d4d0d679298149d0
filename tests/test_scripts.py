"""What `make train` runs, and what makes the bundled model."""

import importlib.util
import shutil
from pathlib import Path

import made_up
import numpy as np
import pytest
import srsly
from spacy.util import load_config, registry
from thinc.api import Config

from spacy_elmo.bilm import BiLM
from spacy_elmo.cli.inputs import read_tokenizer
from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.language_model import LanguageModel
from spacy_elmo.pretraining.training import pretrain

ROOT = Path(__file__).resolve().parent.parent


def load_script(name):
    path = ROOT / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def quickstart():
    return load_script("quickstart")


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
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "assets").mkdir()
    for sample in (ROOT / "assets").glob("*.iob"):
        lines = sample.read_text(encoding="utf8").splitlines()[:20]
        (tmp_path / "assets" / sample.name).write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    steps = ["--training.max_steps", "4", "--training.eval_frequency", "2"]
    quickstart.main(["--paths.elmo", str(tiny_weights), *steps])
    printed = capfd.readouterr().out
    assert "no ELMo" in printed and "gamma" in printed
    assert "doc[3]._.elmo.shape = (3, 12)" in printed


def test_a_wider_model_computes_the_same_and_can_learn(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(made_up.text(20), encoding="utf8")

    def run(name, dim, projection_dim, **paths):
        config = made_up.pretrain_config(text)
        config["paths"].update(paths)
        lstm = {"dim": dim, "projection_dim": projection_dim}
        lstm = {**made_up.TINY_MODEL["lstm"], **lstm}
        config["nlp"] = {"lang": "hu"}
        config["model"] = {**made_up.TINY_MODEL, "lstm": lstm}
        Config(config).to_disk(tmp_path / "config.cfg")
        pretrain(read_settings(tmp_path / "config.cfg"), tmp_path / name)
        return BiLM.from_path(tmp_path / name)

    run("run", 10, 5)
    wide = tmp_path / "wide"
    load_script("widen").main(str(tmp_path / "run"), wide, 14, 8)
    assert Config().from_disk(wide / "config.cfg")["nlp"]["lang"] == "hu"
    with pytest.raises(ValueError, match="OUTPUT must be a new folder"):
        load_script("widen").main(str(tmp_path / "run"), wide, 14, 8)
    narrow, wider = (LanguageModel.from_path(tmp_path / n) for n in ("run", "wide"))
    sentences = [["the", "dog", "barks"]]
    (wanted,), (found,) = narrow.score(sentences), wider.score(sentences)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    # All that is new learns.
    trained = run("again", 14, 8, init_from=str(wide))
    for d in range(2):
        for old, new in zip(wider.bilm.layers_of(d), trained.layers_of(d)):
            assert (old.weight != new.weight).float().mean() > 0.99
            assert (old.projection != new.projection).float().mean() > 0.99
    for size in ({"dim": 9}, {"projection_dim": 4}, {"projection_dim": 24}):
        with pytest.raises(ValueError, match=f"{next(iter(size))} must be"):
            load_script("widen").main(str(tmp_path / "run"), tmp_path / "no", **size)


@pytest.fixture(scope="module")
def bundle():
    return load_script("bundle")


def test_bundle(bundle, tmp_path):
    text, web = (tmp_path / name for name in ("heldout.txt", "heldout_web.txt"))
    for path in (text, web):
        path.write_text(made_up.text(20), encoding="utf8")
    softmax = {"kind": "sampled", "n_samples": 8}
    training = {"precision": "float32", "grad_clip": 1.0, "softmax": softmax}
    config = made_up.pretrain_config(text, text, **training)
    config["corpus"]["ascii_quotes"] = 0.5
    Config(config).to_disk(tmp_path / "config.cfg")
    runs = [tmp_path / "first", tmp_path / "second"]
    for run in runs:
        pretrain(read_settings(tmp_path / "config.cfg"), run)
    output = tmp_path / "en_toy"
    card = {"template": ROOT / "scripts" / "card_en_elmo_sm.md"}
    dev = [text, web]
    bundle.model(runs[1], output, dev, earlier=runs[:1], version="0.2.0", **card)

    sentences = [["the", "dog", "barks"]]
    (wanted,), _ = BiLM.from_path(runs[1]).encode(sentences)
    (found,), _ = BiLM.from_path(output).encode(sentences)
    np.testing.assert_allclose(found, wanted, atol=1e-2)
    assert read_tokenizer(output, None, None).settings.tokenized  # as in training
    meta = srsly.read_json(output / "meta.json")
    assert meta["name"] == "en_toy" and meta["license"] == "MIT"
    assert meta["training"]["tokens"] == 2 * 320
    assert meta["training"]["steps"] == 2 * 8
    tokens = [n for n, _ in meta["curve"]]
    assert tokens == sorted(tokens) and tokens[-1] == 2 * 320
    # A model that is bundled has the history of its runs.
    third = tmp_path / "en_third"
    bundle.model(runs[1], third, dev, earlier=[output], **card)
    assert srsly.read_json(third / "meta.json")["training"]["tokens"] == 3 * 320
    perplexity = meta["perplexity"]["heldout"]["average"]
    assert f"**{perplexity:.1f}**" in (output / "README.md").read_text(encoding="utf8")


@pytest.mark.parametrize("name", ["en_elmo_sm", "en_elmo_md"])
def test_the_card_of_a_bundled_model_is_what_the_script_writes(bundle, tmp_path, name):
    bundled = ROOT / "spacy_elmo" / "weights" / name
    copy = shutil.copytree(bundled, tmp_path / name)
    bundle.card(copy)
    assert (copy / "README.md").read_bytes() == (bundled / "README.md").read_bytes()


def test_the_card_shows_the_tasks_whose_arms_have_all_been_run(bundle):
    scores = {
        "tagger/elmo/600x1200/0": 0.94, "tagger/elmo/600x1200/1": 0.96,
        "tagger/no_listener/600x1200/0": 0.92,
        "tagger/spacy_default/600x1200/0": 0.90, "ner/elmo/600x1200/0": 0.7,
    }  # fmt: skip
    (row,) = bundle.score_rows(scores)
    assert row == "| EWT, tag accuracy | 0.9000 | 0.9200 | 0.9500 | 50% |"
