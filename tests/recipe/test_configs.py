from collections import Counter
from pathlib import Path

import made_up
import pytest
from spacy.tokenizer import Tokenizer
from spacy.util import load_model_from_config
from thinc.api import Config

from spacy_elmo.pretraining.tokenizer import load_language
from spacy_elmo.recipe.configs import pipeline_config, pretrain_config
from spacy_elmo.recipe.raw_text import Survey


@pytest.mark.parametrize(
    "hours, n_dev, between",
    [
        (0.25, 1, 200),
        (1, 1, 200),
        (1, 25_000, 200),
        (1.5, 1, 200),
        (1, 160_000, 600),
        (1.5, 160_000, 700),
        (24, 160_000, 1200),
    ],
)
def test_a_large_dev_part_is_read_less_often(hours, n_dev, between):
    """The last one comes at the end: what is learned after it counts for nothing."""
    config = pipeline_config({"lang": "de"}, ["tagger"], hours, n_dev)
    assert config["training"]["eval_frequency"] == between
    assert config["training"]["max_steps"] % between == 0
    assert abs(config["training"]["max_steps"] - 1200 - 600 * hours) <= between / 2


def test_the_tokenizer_is_that_of_the_language():
    rules = {"tokenizer": {"@tokenizers": "spacy.Tokenizer.v1"}}
    for given, is_by_rules in (({}, False), (rules, True)):
        nlp_config = {"lang": "zh", **given}
        config = pipeline_config(nlp_config, ["tagger"], 1, 1)
        tokenizer = load_model_from_config(config, auto_fill=True).tokenizer
        assert type(tokenizer) is type(load_language(nlp_config).tokenizer)
        assert isinstance(tokenizer, Tokenizer) == is_by_rules


def test_a_config_may_leave_out_what_is_optional(tmp_path):
    config = made_up.pretrain_config("")
    del config["model"]["char_cnn"]["max_characters_per_token"]
    Config(config).to_disk(tmp_path / "own.cfg")
    survey = Survey(4_000_000, 8000, 80_000, 0, Counter())
    found = pretrain_config(tmp_path / "own.cfg", {"lang": "de"}, False, survey)
    assert found["model"]["char_cnn"]["max_characters_per_token"] == 50


@pytest.mark.parametrize("length, window", [(5, 16), (20, 50), (60, 75), (200, 150)])
def test_the_window_is_that_of_the_config_if_words_fit(tmp_path, length, window):
    """That of a start is that of its weights."""
    survey = Survey(4_000_000, 8000, 80_000, 0, Counter({length: 4_080_000}))
    for start in (None, "start"):
        config = made_up.pretrain_config("")
        config["model"]["char_cnn"]["max_characters_per_token"] = 16
        config["paths"]["init_from"] = start
        Config(config).to_disk(tmp_path / "own.cfg")
        found = pretrain_config(tmp_path / "own.cfg", {"lang": "de"}, False, survey)
        char_cnn = found["model"]["char_cnn"]
        assert char_cnn["max_characters_per_token"] == (16 if start else window)


def test_files_of_a_config_are_found_from_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("vocab.txt").write_text("<S>\n</S>\n<UNK>\nein\n")
    config = made_up.pretrain_config("")
    config["vocabulary"]["path"] = "vocab.txt"
    Config(config).to_disk("own.cfg")
    survey = Survey(4_000_000, 8000, 80_000, 0, Counter())
    found = pretrain_config(Path("own.cfg"), {"lang": "de"}, False, survey)
    assert found["vocabulary"]["path"] == str(tmp_path / "vocab.txt")
