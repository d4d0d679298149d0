import random
from collections import Counter

import made_up
import pytest
from tasks import ROOT
from thinc.api import Config

from spacy_elmo.pretraining import machine
from spacy_elmo.recipe.configs import pretrain_config
from spacy_elmo.recipe.pace import Pace, measure_pace, set_length
from spacy_elmo.recipe.raw_text import Survey, split_text

# Longer than abbreviations, which keep their full stop
WORDS = sorted({w for fact in made_up.FACTS for w in fact.split() if len(w) > 3})


def test_the_pace_is_that_of_a_run_of_those_hours(tmp_path, monkeypatch, mapped):
    """A long run is compiled. What it reports to is not told of the trial."""
    compiled = []
    monkeypatch.setattr(machine, "use_fusion", compiled.append)
    monkeypatch.setattr(machine, "MIN_STEPS_TO_COMPILE", 3000)
    # Read until there are pieces enough for the rows
    monkeypatch.setattr("spacy_elmo.recipe.pace.SAMPLE_CHARACTERS", 100)
    monkeypatch.setenv("CXX", "true")  # there, and never run
    rng = random.Random(0)
    lines = (" ".join(rng.choices(WORDS, k=12)) + "." for _ in range(2000))
    (tmp_path / "mine.txt").write_text("\n".join(lines))
    survey = split_text(str(tmp_path / "mine.txt"), tmp_path)
    Config(made_up.pretrain_config("", patience=3)).to_disk(tmp_path / "tiny.cfg")
    config = pretrain_config(tmp_path / "tiny.cfg", {"lang": "de"}, False, survey)
    logger = {"@loggers": "no_logger.v1"}
    config["training"].update(compile="auto", logger=logger)
    pace = measure_pace(config, survey, tmp_path, hours=1.0)
    assert pace.tokens_per_second > 0
    # 12 words, a full stop and the end of the sentence
    assert pace.tokens_per_word == pytest.approx(14 / 12, rel=1e-3)
    assert measure_pace(config, survey, tmp_path, hours=1e-4).tokens_per_second > 0
    assert mapped == [[]] * 4
    assert compiled == [False, True, False, False]


@pytest.mark.parametrize(
    "hours, rows", [(0.01, 32), (1, 32), (2, 64), (4, 128), (100, 128)]
)
def test_a_short_run_has_fewer_rows_rather_than_few_steps(hours, rows):
    survey = Survey(4_000_000, 8000, 80_000, 0, Counter())
    path = ROOT / "configs" / "pretrain_small.cfg"
    config = pretrain_config(path, {"lang": "de"}, False, survey)
    set_length(config, survey, Pace(1500, 1.25), hours)
    training = config["training"]
    assert training["rows"] == rows
    n_steps = training["max_tokens"] / rows / training["unroll_steps"]
    assert n_steps > 4000 or rows == 32


@pytest.mark.parametrize("given", [0, 100, 50_000])
def test_evaluations_take_a_twentieth_of_the_time(given):
    """0 would read all of the held-out text, here a fiftieth of 50 million words."""
    survey = Survey(50_000_000, 100_000, 1_000_000, 0, Counter())
    path = ROOT / "configs" / "pretrain_small.cfg"
    config = pretrain_config(path, {"lang": "de"}, False, survey)
    config["training"]["eval_tokens"] = given
    set_length(config, survey, Pace(1500, 1.25), 1)
    training = config["training"]
    assert 0 < 10 * training["eval_tokens"] <= training["max_tokens"] / 20
