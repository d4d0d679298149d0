"""What spaCy's command line does with a pipeline, from its config to its wheel."""

import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import spacy
from spacy.cli._util import app
from spacy.cli.train import train
from spacy.tokens import DocBin
from tasks import ROOT, make_example
from typer.testing import CliRunner


def run(*args):
    """`python -m spacy ...`, in here."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


@pytest.fixture(scope="module")
def project(tmp_path_factory, bilm_config):
    """A config, a corpus and a pipeline that `train` has made of them."""
    directory = tmp_path_factory.mktemp("project")
    blank = spacy.blank("en")
    lines = (ROOT / "assets" / "sample_train.iob").read_text(encoding="utf8")
    docs = [make_example(blank, line).reference for line in lines.splitlines()[:140]]
    for doc in docs:
        doc.cats = {"question": doc.cats["question"]}
    corpus, dev = directory / "corpus.spacy", directory / "dev.spacy"
    DocBin(docs=docs[:110]).to_disk(corpus)
    DocBin(docs=docs[110:]).to_disk(dev)
    config = spacy.util.load_config(ROOT / "configs" / "ner_tagger.cfg")
    config["components"]["elmo"]["model"] = bilm_config()
    config["components"]["textcat_multilabel"] = {
        "factory": "textcat_multilabel",
        "threshold": 0.5,
        "model": {
            "@architectures": "spacy.TextCatReduce.v1",
            "tok2vec": {"@architectures": "spacy_elmo.ELMoListener.v1"},
            "exclusive_classes": False,
            "use_reduce_first": False,
            "use_reduce_last": False,
            "use_reduce_max": False,
            "use_reduce_mean": True,
        },
    }
    config["nlp"]["pipeline"].append("textcat_multilabel")
    path = directory / "config.cfg"
    config.to_disk(path)
    run("init", "fill-config", path, path)
    paths = {"paths.train": str(corpus), "paths.dev": str(dev)}
    train(path, directory / "out", overrides={**paths, "training.max_steps": 4})
    overrides = [part for k, v in paths.items() for part in (f"--{k}", v)]
    return SimpleNamespace(
        directory=directory, config=path, corpus=corpus, overrides=overrides,
        model=directory / "out" / "model-last",
    )  # fmt: skip


def test_debug_config_and_data_accept_it(project):
    assert "Config is valid" in run(
        "debug", "config", project.config, *project.overrides
    )
    printed = run("debug", "data", project.config, *project.overrides)
    assert "Pipeline can be initialized with data" in printed


def test_debug_model_shows_a_listening_component(project):
    options = ["-P3", *project.overrides]
    printed = run("debug", "model", project.config, "ner", *options)
    assert "initialized" in printed.lower() and "prediction" in printed.lower()


def test_train_with_what_a_corpus_reader_can_do(project, tmp_path):
    """Sentences as Docs, cut, in lower case."""
    lower = {"@augmenters": "spacy.lower_case.v1", "level": 0.5}
    changes = {"gold_preproc": True, "max_length": 5, "augmenter": lower}
    config = spacy.util.load_config(project.config)
    # spaCy leaves the categories of Docs out of their sentences
    config["nlp"]["pipeline"].remove("textcat_multilabel")
    del config["components"]["textcat_multilabel"]
    config["corpora"]["train"].update(changes)
    config.to_disk(tmp_path / "config.cfg")
    run("train", tmp_path / "config.cfg", "--output", tmp_path / "out",
        "--training.max_steps", 2, *project.overrides)  # fmt: skip
    assert spacy.load(tmp_path / "out" / "model-last")("A play.")[1].tag_


def test_evaluate_prints_scores(project):
    printed = run("evaluate", project.model, project.corpus)
    assert "TAG" in printed and "NER F" in printed


def test_apply_keeps_the_layers_where_user_data_is_kept(project, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("She made a play.", encoding="utf8")
    output = tmp_path / "out.spacy"
    run("apply", project.model, text, output)
    (doc,) = DocBin().from_disk(output).get_docs(spacy.blank("en").vocab)
    assert doc[2].tag_ and doc.text == "She made a play."
    np.testing.assert_allclose(
        doc._.elmo, spacy.load(project.model)(doc.text)._.elmo, rtol=1e-5, atol=1e-6
    )


def test_benchmark_speed_runs_it(project):
    printed = run("benchmark", "speed", project.model, project.corpus, "--batches", 30,
                  "--batch-size", 4, "--warmup", 1)  # fmt: skip
    assert "words/s" in printed


def test_find_threshold_tries_thresholds(project):
    printed = run("find-threshold", project.model, project.corpus,
                  "textcat_multilabel", "threshold", "cats_macro_f",
                  "--n_trials", 3)  # fmt: skip
    assert "threshold" in printed.lower()


def test_assemble_reads_what_train_wrote(project, tmp_path):
    """As projects do that put trained components together without training."""
    config = spacy.util.load_config(project.model / "config.cfg")
    for name in config["nlp"]["pipeline"]:
        config["components"][name] = {"source": str(project.model)}
    config.to_disk(tmp_path / "config.cfg")
    run("assemble", tmp_path / "config.cfg", tmp_path / "out")
    text = "She made a play in May."
    docs = [spacy.load(path)(text) for path in (project.model, tmp_path / "out")]
    np.testing.assert_array_equal(*(doc._.elmo for doc in docs))
    assert [t.tag_ for t in docs[0]] == [t.tag_ for t in docs[1]]


def test_a_wheel_holds_the_weights_and_asks_for_this_package(project, tmp_path):
    options = ["--build", "wheel", "--name", "with_elmo", "--force"]
    run("package", project.model, tmp_path, *options)
    (wheel,) = tmp_path.rglob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        requires = archive.read(metadata).decode("utf8")
        assert any(name.endswith("elmo/weights.hdf5") for name in names)
        assert "Requires-Dist: spacy-elmo" in requires
        archive.extractall(tmp_path / "site")
    # As installed, in a process that knows nothing of the rest.
    script = (
        "import en_with_elmo; doc = en_with_elmo.load()('She made a play.'); "
        "print(doc[3]._.elmo.shape, doc[3].tag_)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True,
        cwd=tmp_path / "site",
    )  # fmt: skip
    assert done.stdout.startswith("(3, 12)"), done.stderr
