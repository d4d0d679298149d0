from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
import spacy
from spacy.cli import app, convert, debug_config, fill_config
from spacy.cli.train import train
from spacy.tokens import DocBin
from tasks import ROOT, SAMPLE

WITHOUT_COMPONENT = ["ner_inline", "tagger_finetune"]
CONFIGS = ["ner", "tagger", "ner_tagger", "ner_bilstm", *WITHOUT_COMPONENT]
FROM_THE_COMMAND_LINE = "ner_tagger"


@pytest.fixture(scope="module")
def overrides(tmp_path_factory, tiny_weights):
    """Paths and few steps: a few Docs of the sample corpus, converted as in README."""
    directory = tmp_path_factory.mktemp("corpus")
    convert(SAMPLE, directory, file_type="spacy", converter="iob", n_sents=5)
    path = directory / "sample_train.spacy"
    docs = list(DocBin().from_disk(path).get_docs(spacy.blank("en").vocab))
    assert docs[0].ents and docs[0][0].tag_ and len(list(docs[0].sents)) == 5
    DocBin(docs=docs[:4]).to_disk(path)
    return {
        "paths.train": str(path),
        "paths.dev": str(path),
        "paths.elmo": str(tiny_weights),
        "training.max_steps": 2,
    }


def check_trained(path, name):
    nlp = spacy.load(path / "model-last")
    assert ("elmo" in nlp.pipe_names) == (name not in WITHOUT_COMPONENT)
    doc = nlp("Last year Eleanor wrote a short play for Chicago.")
    if name not in WITHOUT_COMPONENT:
        assert doc[3]._.elmo.shape == (3, 12)
    for pipe_name in set(nlp.pipe_names) - {"elmo"}:
        nodes = nlp.get_pipe(pipe_name).model.walk()
        (mix,) = (node for node in nodes if node.name == "elmo-mix")
        assert (mix.get_dim("nL"), mix.get_dim("nO")) == (3, 12)
        assert np.abs(mix.get_param("w")).max() > 0  # it has learned
    if "tagger" in nlp.pipe_names:
        assert all(token.tag_ for token in doc)


def test_what_was_fine_tuned_runs_as_a_frozen_one(overrides, tmp_path):
    config = ROOT / "configs" / "tagger_finetune.cfg"
    train(config, tmp_path, overrides=overrides)
    elmo = "components.tagger.model.tok2vec.embed.elmo"
    frozen = {f"{elmo}.trainable": False, f"{elmo}.bilm.precision": "int8"}
    vectors = []
    for changes in ({}, {**frozen, f"{elmo}.bilm.precision": "float32"}, frozen):
        nlp = spacy.load(tmp_path / "model-last", config=changes)
        tok2vec = nlp.get_pipe("tagger").model.get_ref("tok2vec")
        vectors.append(tok2vec.predict([nlp.make_doc("Eleanor wrote a play.")])[0])
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-5)
    assert np.corrcoef(vectors[2].ravel(), vectors[0].ravel())[0, 1] > 0.99
    assert not np.array_equal(vectors[2], vectors[1])


def test_each_config_is_tested():
    found = {path.stem for path in (ROOT / "configs").glob("*.cfg")}
    # The sample corpus has no trees: tests/test_experiments.py trains those for them.
    tested = {*CONFIGS, "ud", "ud_finetune"}
    assert {name for name in found if not name.startswith("pretrain")} == tested


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_are_complete(name, overrides, tmp_path):
    """`debug config` accepts it as it is and filled, and the filled one trains."""
    config = ROOT / "configs" / f"{name}.cfg"
    filled = tmp_path / "filled.cfg"
    with redirect_stdout(StringIO()) as printed:
        fill_config(filled, config, silent=True)
        for path in (config, filled):
            debug_config(path, overrides=overrides, show_funcs=False, show_vars=False)
        if name != FROM_THE_COMMAND_LINE:
            train(filled, tmp_path / "out", overrides=overrides)
            check_trained(tmp_path / "out", name)
    assert printed.getvalue().count("Config is valid") == 2
    found, given = (spacy.util.load_config(path) for path in (filled, config))
    # To fill it in changes nothing that is there
    assert list(found["components"]) == list(given["components"])
    assert found.merge(given) == found


def test_spacy_train_from_the_command_line(overrides, tmp_path, capsys):
    options = [word for k, v in overrides.items() for word in (f"--{k}", str(v))]
    config = ROOT / "configs" / f"{FROM_THE_COMMAND_LINE}.cfg"
    command = ["train", str(config), "--output", str(tmp_path), *options]
    app(command, standalone_mode=False)
    printed = capsys.readouterr().out
    assert "LOSS TAGGER  LOSS NER" in printed
    assert "LOSS ELMO" not in printed  # nothing is learned there
    check_trained(tmp_path, FROM_THE_COMMAND_LINE)
