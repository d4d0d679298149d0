import shutil

import made_up
import pytest
import torch
from runs import read_log

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import CorpusError, MissingWeights, TrainingError
from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.language_model import read_softmax
from spacy_elmo.pretraining.training import pretrain

STAND_STILL = {"training.max_tokens": 1, "training.optimizer.learn_rate": 1e-12}


def softmax_rows(output):
    words = (output / "vocab.txt").read_text().split()
    return dict(zip(words, read_softmax(output, 12).weight))


@pytest.fixture
def trained(finished_run, tmp_path):
    for name in ("train.txt", "config.cfg"):
        shutil.copy(finished_run / name, tmp_path)
    return finished_run / "out"


def adapt(trained, tmp_path, text, overrides=None):
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text(text)
    paths = {
        f"paths.{name}": str(tmp_path / f"{name}.txt") for name in ("train", "dev")
    }
    start = {"paths.init_from": str(trained), **paths, **(overrides or {})}
    settings = read_settings(tmp_path / "config.cfg", start)
    pretrain(settings, tmp_path / "domain")
    return tmp_path / "domain"


def test_the_same_text_goes_on_from_where_the_model_was(trained, tmp_path):
    final = read_log(trained)[-1]
    out = adapt(trained, tmp_path, (tmp_path / "train.txt").read_text())
    first, *_, last = read_log(out)
    assert first["initial"] and last["final"]
    assert first["average"] < 1.2 * final["average"]
    assert last["average"] < first["average"]


def test_another_language_than_that_of_the_start_is_said(trained, tmp_path, capsys):
    text = (tmp_path / "train.txt").read_text()
    adapt(trained, tmp_path, text, {**STAND_STILL, "nlp.lang": "hu"})
    said = " ".join(capsys.readouterr().out.split())
    assert "ELMOW013" in said and "'hu'" in said
    shutil.rmtree(tmp_path / "domain")
    adapt(trained, tmp_path, text, STAND_STILL)
    assert "ELMOW013" not in capsys.readouterr().out


def test_a_run_that_only_gets_worse_keeps_its_start(trained, tmp_path):
    wild = {
        "training.keep_best": True, "training.max_tokens": 160,
        "training.eval_steps": 2, "training.eval_tokens": 0,
        "training.optimizer": {"learn_rate": 3.0, "decay": "none", "warmup_steps": 0},
    }  # fmt: skip
    text = (tmp_path / "train.txt").read_text()
    first, *later, last = read_log(adapt(trained, tmp_path, text, wild))
    found = [line["average"] for line in later if "average" in line]
    assert len(found) > 1 and found[1] > first["average"]
    assert last["average"] == pytest.approx(first["average"])


def test_a_run_that_is_killed_before_a_checkpoint_starts_its_log_anew(
    trained, tmp_path, stop_at
):
    text = (tmp_path / "train.txt").read_text()
    stop_at(2)
    with pytest.raises(KeyboardInterrupt):
        adapt(trained, tmp_path, text)
    stop_at(None)
    log = read_log(adapt(trained, tmp_path, text))
    assert [line.get("initial") for line in log].count(True) == 1


@pytest.fixture
def stopped(trained, tmp_path, stop_at):
    """The start, the text and the settings of a run that was killed."""
    start = shutil.copytree(trained, tmp_path / "start")
    text, often = (tmp_path / "train.txt").read_text(), {"training.checkpoint_steps": 2}
    stop_at(3)
    with pytest.raises(KeyboardInterrupt):
        adapt(start, tmp_path, text, often)
    stop_at(None)
    return start, text, often


def test_a_run_resumes_where_its_start_has_gone(stopped, tmp_path):
    start, text, often = stopped
    shutil.rmtree(start)
    log = read_log(adapt(start, tmp_path, text, often))
    assert log[-1]["final"]


def test_a_run_with_another_start_does_not_resume(stopped, tmp_path):
    start, text, often = stopped
    other = start.rename(tmp_path / "other")
    config = (tmp_path / "domain" / "config.cfg").read_text()
    with pytest.raises(TrainingError, match=r"ELMO110.*\(paths.init_from\)"):
        adapt(other, tmp_path, text, often)
    assert (tmp_path / "domain" / "config.cfg").read_text() == config


def test_words_of_both_vocabularies_keep_their_rows(trained, tmp_path):
    text = made_up.text(60).replace("cat", "zebra")
    out = adapt(trained, tmp_path, text, STAND_STILL)
    old, new = softmax_rows(trained), softmax_rows(out)
    assert "zebra" in new and "zebra" not in old
    for word in ("<S>", "dog", "bread"):
        assert torch.allclose(old[word], new[word], atol=1e-6)
    assert torch.allclose(old["<UNK>"], new["zebra"], atol=1e-6)


def test_new_words_share_the_mass_of_unknown(trained, tmp_path):
    text = made_up.text(60).replace("cat", "zebra").replace("dog", "gnu")
    out = adapt(trained, tmp_path, text, STAND_STILL)
    old, new = (
        dict(zip((o / "vocab.txt").read_text().split(), read_softmax(o, 12).bias))
        for o in (trained, out)
    )
    mass = sum(new[word].exp() for word in new if word == "<UNK>" or word not in old)
    assert torch.allclose(mass, old["<UNK>"].exp(), atol=1e-5)
    assert torch.allclose(new["zebra"], new["gnu"])
    assert torch.allclose(new["bread"], old["bread"], atol=1e-5)


def test_the_biLM_of_another_geometry_is_refused_before_text_is_read(trained, tmp_path):
    text = (tmp_path / "train.txt").read_text()
    with pytest.raises(TrainingError, match="lstm.dim is 16, there 32"):
        adapt(trained, tmp_path, text, {"model.lstm.dim": 16})
    assert not (tmp_path / "domain" / "corpus").exists()


def test_a_start_that_is_not_there_is_noticed_before_text_is_read(trained, tmp_path):
    with pytest.raises(MissingWeights, match="nowhere"):
        adapt(tmp_path / "nowhere", tmp_path, "any text")
    assert not (tmp_path / "domain" / "corpus").exists()


def test_a_softmax_without_its_words_is_noticed_before_text_is_read(trained, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "start"), "zip", trained)
    with pytest.raises(CorpusError, match=r"ELMO051.*vocab\.txt.*unpack"):
        adapt(archive, tmp_path, "any text")
    assert not (tmp_path / "domain" / "corpus").exists()


def test_a_model_without_a_softmax_gives_its_biLM(trained, tmp_path):
    bare = tmp_path / "bare"
    BiLM.from_path(trained).save(bare)
    text = (tmp_path / "train.txt").read_text()
    out = adapt(bare, tmp_path, text, STAND_STILL)
    for mine, theirs in zip(
        BiLM.from_path(out).parameters(), BiLM.from_path(trained).parameters()
    ):
        assert torch.allclose(mine, theirs, atol=1e-6)
