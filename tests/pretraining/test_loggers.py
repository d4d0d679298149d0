"""[training.logger]: what `spacy train` can log to, pretraining can."""

import pytest
import spacy
import srsly

from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.training import pretrain


@pytest.fixture
def seen():
    """What a logger of somebody else has been given."""
    infos = []

    @spacy.registry.loggers("test_logger.v1")
    def make(project: str):
        def setup(nlp, stdout, stderr):
            assert nlp.config["training"]["rows"] == 4
            infos.append(project)
            return infos.append, lambda: infos.append("closed")

        return setup

    return infos


def test_a_logger_sees_losses_and_perplexities(make_settings, tmp_path, seen):
    block = {"@loggers": "test_logger.v1", "project": "mine"}
    found = pretrain(make_settings(logger=block), tmp_path / "out")
    assert seen[0] == "mine"
    assert seen[-1] == "closed"
    assert [info["step"] for info in seen[1:-1]] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
    records = list(srsly.read_jsonl(tmp_path / "out" / "log.jsonl"))
    losses = [r["loss"] for r in records if "loss" in r]
    given = {info["step"]: info["losses"]["bilm"] for info in seen[1:-1]}
    assert list(given.values()) == pytest.approx(losses)
    assert seen[-2]["score"] == found.average
    assert seen[-2]["other_scores"]["bits_per_character"] > 0
    assert seen[-2]["words"] == 320


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_spacys_own_console_logger_shows_perplexities(
    version, make_settings, tmp_path, capsys
):
    block = {"@loggers": f"spacy.ConsoleLogger.{version}"}
    found = pretrain(make_settings(logger=block), tmp_path / "out")
    table = capsys.readouterr().out.split()
    assert f"{found.average:.2f}" in table


@pytest.mark.parametrize("overrides", [{}, {"paths.dev": None}])
def test_spacys_own_logger_writes_a_file(overrides, make_settings, tmp_path):
    """As JSON, of finite numbers: there is no perplexity yet, or never."""
    path = tmp_path / "steps.jsonl"
    block = {"@loggers": "spacy.ConsoleLogger.v3", "output_file": str(path)}
    settings = make_settings(logger=block, overrides=overrides)
    found = pretrain(settings, tmp_path / "out")
    rows = list(srsly.read_jsonl(path))
    assert rows[0]["score"] == 0.0 and len(rows) >= 8
    assert rows[-1]["score"] == (pytest.approx(found.average) if found else 0.0)


def test_a_logger_that_is_not_there_is_named_before_text_is_read(
    make_settings, tmp_path
):
    settings = make_settings(logger={"@loggers": "no_logger.v1"})
    with pytest.raises(CorpusError, match=r"ELMO051.*training\.logger.*no_logger"):
        pretrain(settings, tmp_path / "out")
    assert not (tmp_path / "out" / "corpus").exists()
