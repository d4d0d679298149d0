from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
import spacy
from spacy.cli import app, convert, debug_config, fill_config
from spacy.cli.train import train
from spacy.tokens import DocBin
from tasks import ROOT, SAMPLE

CONFIGS = ["ner", "tagger", "ner_tagger", "ner_inline", "ner_bilstm"]
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
    assert ("elmo" in nlp.pipe_names) == (name != "ner_inline")
    doc = nlp("Last year Eleanor wrote a short play for Chicago.")
    if name != "ner_inline":
        assert doc[3]._.elmo.shape == (3, 12)
    for pipe_name in set(nlp.pipe_names) - {"elmo"}:
        nodes = nlp.get_pipe(pipe_name).model.walk()
        (mix,) = (node for node in nodes if node.name == "elmo-mix")
        assert (mix.get_dim("nL"), mix.get_dim("nO")) == (3, 12)
        assert np.abs(mix.get_param("w")).max() > 0  # it has learned
    if "tagger" in nlp.pipe_names:
        assert all(token.tag_ for token in doc)


def test_each_config_is_tested():
    found = {path.stem for path in (ROOT / "configs").glob("*.cfg")}
    # The sample corpus has no trees: tests/test_experiments.py trains ud.cfg.
    tested = {*CONFIGS, "ud"}
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
