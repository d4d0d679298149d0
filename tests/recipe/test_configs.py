from collections import Counter
from pathlib import Path

import made_up
import pytest
from thinc.api import Config

from spacy_elmo.recipe.configs import pipeline_config, pretrain_config
from spacy_elmo.recipe.raw_text import Survey


@pytest.mark.parametrize(
    "hours, n_dev, between",
    [(1, 1, 200), (1, 25_000, 200), (1, 160_000, 600), (24, 160_000, 1200)],
)
def test_a_large_dev_part_is_read_less_often(hours, n_dev, between):
    """The last one comes at the end: what is learned after it counts for nothing."""
    config = pipeline_config({"lang": "de"}, ["tagger"], hours, n_dev)
    assert config["training"]["eval_frequency"] == between
    assert config["training"]["max_steps"] % between == 0


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
