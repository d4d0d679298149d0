"""Each script of benchmarks/ measures something and writes it, at toy size."""

import gzip
import importlib
import json
import runpy
import sys
from pathlib import Path

import made_up
import pytest
import torch
from spacy.cli import app
from thinc.api import Config

import spacy_elmo.cli  # noqa: F401 (adds the commands to `app`)

FOLDER = Path(__file__).parent.parent / "benchmarks"
TOY_MODEL = ["--model.lstm.dim", "8", "--model.lstm.projection_dim", "4"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(script, *args): as `python benchmarks/script.py`, in this process.
    RETURNS: What it wrote as JSON.
    """
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    n_threads = torch.get_num_threads()
    modules = set(sys.modules)

    def call(script, *args):
        path = FOLDER / f"{script}.py"
        argv = [str(path), "--output", str(tmp_path), *map(str, args)]
        monkeypatch.setattr(sys, "argv", argv)
        runpy.run_path(str(path), run_name="__main__")
        assert (tmp_path / f"{script}.md").read_text()
        return json.loads((tmp_path / f"{script}.json").read_text())

    yield call
    torch.set_num_threads(n_threads)
    for name in {"harness", "inputs", "peers"} & (set(sys.modules) - modules):
        del sys.modules[name]


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """A treebank's .tsv: number, word, lemma, part of speech, tag, head, label."""
    path = tmp_path_factory.mktemp("treebank") / "dev.tsv"
    blocks = []
    for sentence in made_up.text(8).split("\n"):
        rows = [
            f"{i}\t{word}\t{word}\tX\t{word[0].upper()}\t{i - 1}\tdep"
            for i, word in enumerate(sentence.split(), start=1)
        ]
        blocks.append("\n".join(rows))
    path.write_text("\n\n".join(filter(None, blocks)) + "\n", encoding="utf8")
    return path


def run_spacy(_, name, *args):
    """`-m spacy ...` in this process."""
    assert name == "spacy"
    app(list(map(str, args)), standalone_mode=False)


def test_speed(run, treebank, fast_bfloat16):
    args = ["--geometries", "toy", "--words", 60, "--turns", 1, "--text", treebank]
    # bfloat16 of processors that lack it takes a minute for the usual 2,048.
    args += ["--product", 128]
    found = run("speed", *args)["geometries"]["toy"]
    assert len(found["words_per_second"]) == 6
    assert 0 < found["share_of_peak"]["float32"]
    assert found["outputs"]["spacy_elmo, bfloat16, new words, mean cosine"] > 0.999


def test_costs(run, treebank):
    args = ["--geometries", "toy", "--turns", 1, "--text", treebank]
    found = run("costs", *args)["geometries"]["toy"]
    assert list(found["growth"]) == ["words of text", "tokens per batch", "threads"]
    assert found["pipeline"]["weights, MB"] > 0.1
    assert len(found["epochs"]["seconds"]) == 4
    assert found["latency"]["nlp(text)"] > 0


def test_profile_pipeline(run, treebank, tiny_weights):
    args = ["--weights", tiny_weights, "--words", 60, "--turns", 1, "--text", treebank]
    found = run("profile_pipeline", *args)
    parts = found["microseconds per word"]
    wanted = {"LSTMs: products", "assembling batches", "mix", "rest of ner"}
    assert wanted <= set(parts) and min(parts.values()) >= 0
    assert list(found["words/s"]) == ["all", "elmo", "tagger", "ner"]
    assert found["milliseconds per sentence"]["elmo"] > 0


def test_tuning(run, treebank):
    args = ["--geometries", "toy", "--turns", 1, "--words", 60, "--text", treebank]
    rows = run("tuning", *args)["toy"]
    assert len(rows) == 11 and len({name for name, *_ in rows}) == 8
    for _, _, *ratios in rows:
        assert len(ratios) >= 2 and min(ratios) > 0


def test_pretrain_beside_another_commit(run, tmp_path):
    text, config = tmp_path / "text.txt", tmp_path / "tiny.cfg"
    text.write_text(made_up.text(60), encoding="utf8")
    Config(made_up.pretrain_config(text)).to_disk(config)
    args = ["--text", text, "--config", config, "--dim", 24, "--rows", 4]
    args += ["--precisions", "float32", "--no-compile", "--turns", 1]
    (found,) = run("pretrain", *args, "--against", FOLDER.parent)["geometries"]
    names = ["plain PyTorch", "spacy_elmo", FOLDER.parent.name]
    assert list(found["arms"]) == [f"{name}, float32" for name in names]
    assert set(found["arms"][names[1] + ", float32"]["ratios"]) == {"plain", names[2]}


def test_pretrain_parts(run, tmp_path):
    text, config = tmp_path / "text.txt", tmp_path / "tiny.cfg"
    text.write_text(made_up.text(60), encoding="utf8")
    Config(made_up.pretrain_config(text)).to_disk(config)
    args = ["--text", text, "--config", config, "--dim", 8, "--rows", 4]
    args += ["--precisions", "float32", "--no-compile"]
    (step,) = run("pretrain_parts", *args)["steps"]
    assert len(step["parts"]) == 6 and min(step["parts"].values()) > 0


def test_long_run(run, tiny_weights):
    sizes = ["--words", 300, "--every", 100, "--doc-words", 50]
    found = run("long_run", "--weights", tiny_weights, *sizes)
    assert [n >= 100 * (i + 1) for i, (n, _) in enumerate(found["pipe"])] == [True] * 3
    doc = found["doc"]
    assert doc["words"] == 50 and doc["array"] == 50 * 3 * 12 * 4 / 2**20
    assert doc["peak"] >= doc["before"]


def test_import_time(run):
    assert run("import_time", "--turns", 1, "--warm-up", 0)["ratio"] > 0


def test_blimp(run, tmp_path):
    pairs = [("one", "agreement", "Cats sleep.", "Cats sleeps.")] * 3
    data = tmp_path / "blimp.tsv.gz"
    data.write_bytes(
        gzip.compress("".join("\t".join(p) + "\n" for p in pairs).encode())
    )
    found = run("blimp", "--data", data, "--every", 2)
    assert found["pairs"] == 2 and set(found["phenomena"]) == {"agreement"}
    assert found["overall"]["both directions"] in (0, 100)


def test_corpus_memory(run, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(made_up.text(200), encoding="utf8")
    args = ["--text", text, "--mb", 0.02, "--steps", 1, "--", *TOY_MODEL]
    (found,) = run("corpus_memory", *args)["runs"].values()
    assert found["peak memory, MB"] > 0


def test_recipes(run, tmp_path, monkeypatch):
    files = [tmp_path / name for name in ("text.txt", "old.txt", "new.txt")]
    for seed, file in enumerate(files):
        file.write_text(made_up.text(60, seed), encoding="utf8")
    config = tmp_path / "tiny.cfg"
    Config(made_up.pretrain_config(files[0])).to_disk(config)
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(importlib.import_module("harness"), "run_python", run_spacy)
    recipes = ["1024 cells, projection 128", "3 layers"]
    args = ["--text", files[0], "--heldout", *files[1:], "--work", tmp_path / "work"]
    args += ["--config", config, "--tokens", 320, "--recipes", *recipes]
    found = run("recipes", *args)["recipes"]
    assert [r["tokens"] for r in found.values()] == [320, 240]  # by what a step costs
    for recipe in found.values():
        assert set(recipe["bits"]) == {"old.txt", "new.txt", "all"}
        assert 0 < recipe["bits"]["all"] < 8


def test_accuracy(run, tmp_path, treebank, monkeypatch):
    data = tmp_path / "data" / "ewt"
    data.mkdir(parents=True)
    for part in ("train", "dev"):
        (data / f"{part}.tsv").write_text(treebank.read_text())
    args = ["--tasks", "tagger", "--arms", "spacy_default", "--steps", 3]
    args += ["--data", data.parent, "--work", tmp_path / "work"]
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(importlib.import_module("harness"), "run_python", run_spacy)
    assert run("accuracy", *args)["runs"]["tagger/spacy_default/3x1200/0"]["score"] >= 0
