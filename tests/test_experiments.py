"""What benchmarks/experiments is made of: its configs, data and components."""

import sys
from pathlib import Path

import numpy as np
import pytest
import spacy
import srsly
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config, Model

FOLDER = Path(__file__).parent.parent / "benchmarks" / "experiments"
PLANS = sorted(FOLDER.glob("*/experiment.yml"))
sys.path.insert(0, str(FOLDER))

import components  # noqa: E402
import data  # noqa: E402
import run  # noqa: E402


def some_runs():
    """Each task and each arm of each plan at least once."""
    for path in PLANS:
        plan, seen = srsly.read_yaml(path), set()
        for key, settings in run.runs_of(plan).items():
            names = {settings["task"], settings["arm"]}
            if not names <= seen:
                seen |= names
                yield pytest.param(settings, id=f"{path.parent.name}/{key}")


@pytest.mark.parametrize("settings", list(some_runs()))
def test_every_run_has_a_config_that_spacy_takes(settings):
    config = Config().from_str(run.make_config(settings).to_str())
    nlp = load_model_from_config(config, auto_fill=True, validate=True)
    has_elmo = settings["encoder"] not in ("cnn", "bilstm")
    assert ("elmo" in nlp.pipe_names) == has_elmo
    assert config["training"]["max_steps"] == settings["steps"]


def test_a_setting_of_an_arm_reaches_its_listener():
    plan = srsly.read_yaml(FOLDER / "weighting" / "experiment.yml")
    found = {}
    for settings in run.runs_of(plan).values():
        config = run.make_config(settings)
        (listener,) = run.nodes(config, "spacy_elmo.ELMoListener.v1") or [{}]
        found[settings["arm"]] = (listener.get("layers"), listener.get("l2"))
    assert found["last layer"] == ("top", 0.001)
    assert found["lambda = 1"] == (None, 1.0)
    assert found["baseline"] == (None, None)


def test_mentions_are_read_from_brackets():
    column = ["(1|person(2|place)", "_", "1)", "(2|place|Rome)", "(3|a (4|b", "4) 3)"]
    column[0] = "(1|person (2|place)"
    assert data.mentions(column) == [
        (0, 1, "2"), (0, 3, "1"), (3, 4, "2"), (4, 6, "3"), (4, 6, "4"),
    ]  # fmt: skip


def test_roles_are_spans_of_bio_tags():
    tags = ["B-ARG0", "I-ARG0", "V", "B-ARG1", "I-ARG2", "O", "I-ARGM"]
    found = list(components.spans_of(tags))
    assert found == [(0, 2, "ARG0"), (3, 4, "ARG1"), (4, 5, "ARG2"), (6, 7, "ARGM")]


@pytest.mark.parametrize("name", sorted(data.SETS))
def test_every_set_is_read(name, shared):
    folder = shared / "data" / "eval"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    docs = [doc for doc, _ in zip(data.SETS[name](folder, "dev"), range(3))]
    assert len(docs) == 3
    for doc in docs:
        predicted = components.to_predict(doc)
        assert [t.text for t in predicted] == [t.text for t in doc]
        if "pairs" in doc.user_data:
            pairs, labels = doc.user_data["pairs"], doc.user_data["labels"]
            assert len(pairs) == len(labels) > 0
            assert all(a < b <= c < d for a, b, c, d in pairs) or name == "coref_gum"
            assert [s.start for s in predicted.sents] == [s.start for s in doc.sents]
        if name == "srl_ewt":
            assert [e.label_ for e in predicted.ents] == ["MARK"]


def test_pairs_have_the_gradient_of_finite_differences():
    nlp = spacy.blank("en")
    docs = [Doc(nlp.vocab, words=["a"] * n) for n in (4, 3)]
    docs[0].user_data["pairs"] = [[0, 2, 2, 4], [0, 1, 2, 4]]
    docs[1].user_data["pairs"] = [[0, 1, 1, 3]]
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=(len(doc), 3)).astype("f") for doc in docs]
    layer = Model("pairs", components.pairs_forward)
    Y, backprop = layer((docs, vectors), True)
    dY = rng.normal(size=Y.shape).astype("f")
    gradients = backprop(dY)
    for i, j, k in [(0, 0, 0), (0, 3, 2), (1, 1, 1), (1, 2, 0)]:
        losses = []
        for step in (1e-2, -1e-2):
            moved = [v.copy() for v in vectors]
            moved[i][j, k] += step
            losses.append(float((layer.predict((docs, moved)) * dY).sum()))
        slope = (losses[0] - losses[1]) / 2e-2
        assert gradients[i][j, k] == pytest.approx(slope, abs=2e-3)


def test_pairs_are_learned(bilm_config):
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", config={"model": bilm_config()})
    model = {
        "@architectures": "experiments.SpanPairs.v1",
        "hidden_width": 16,
        "tok2vec": {"@architectures": "spacy_elmo.ELMoListener.v1", "dropout": 0.0},
    }
    scorer = {"@scorers": "experiments.pairs.v1"}
    nlp.add_pipe("span_pairs", config={"model": model, "scorer": scorer})
    examples = []
    for a in ("red", "blue", "green"):
        for b in ("red", "blue", "green"):
            doc = Doc(nlp.vocab, words=[a, "and", b])
            doc.user_data["pairs"] = [[0, 1, 2, 3]]
            doc.user_data["labels"] = ["yes" if a == b else "no"]
            examples.append(Example(components.to_predict(doc), doc))
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.02
    for _ in range(100):
        nlp.update(examples, sgd=optimizer)
    assert nlp.evaluate(examples)["pairs_acc"] == 1.0
