import errno
import os
import re
import shutil
from pathlib import Path

import made_up
import pytest
import torch
from runs import assert_same_run, losses, read_log, weights
from thinc.api import Config

from spacy_elmo.errors import CorpusError, TrainingError
from spacy_elmo.pretraining import checkpoint, training
from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.training import pretrain
from spacy_elmo.storage import hold


def test_the_checkpoint_before_a_truncated_one_is_used(finished_run, tmp_path):
    settings = read_settings(finished_run / "config.cfg")
    broken = tmp_path / "broken"
    shutil.copytree(finished_run / "out", broken)
    last, previous = broken / checkpoint.CHECKPOINT, broken / checkpoint.PREVIOUS
    last.write_bytes(last.read_bytes()[:-1000])
    (broken / f".{checkpoint.CHECKPOINT}.1f0c7a0e").touch()
    with pytest.warns(UserWarning, match=r"ELMOW003.*checkpoint\.pt.*at step 6"):
        pretrain(settings, broken)
    assert_same_run(broken, finished_run / "out")
    assert not list(broken.glob(".*"))
    for path in (last, previous):
        path.write_bytes(b"")
    with pytest.raises(TrainingError, match=r"ELMO056.*checkpoint\.pt"):
        pretrain(settings, broken)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    make_settings, tmp_path, monkeypatch
):
    def full(checkpoint, path):
        path.write_bytes(b"part")
        raise RuntimeError("PytorchStreamWriter failed writing file")

    settings = make_settings()
    pretrain(settings, tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.pt"))
    before = [path.read_bytes() for path in files]
    monkeypatch.setattr(torch, "save", full)
    longer = make_settings(max_tokens=480)
    with pytest.raises(TrainingError, match="ELMO115.*Free space"):
        pretrain(longer, tmp_path / "out")
    assert [path.read_bytes() for path in files] == before
    assert not list((tmp_path / "out").glob(".*"))


def test_a_model_without_its_checkpoints_is_not_lost(make_settings, tmp_path):
    """But with the same text, to remove them is to start over."""
    output = tmp_path / "out"
    pretrain(make_settings(), output)
    for path in output.glob("*.pt"):
        path.unlink()
    before = (output / "weights.hdf5").read_bytes()
    text = tmp_path / "other.txt"
    text.write_text(made_up.text(70, 5))
    other = make_settings(overrides={"paths.train": str(text)})
    with pytest.raises(TrainingError, match=r"ELMO110.*corpus.train.*\(text\)"):
        pretrain(other, output)
    pretrain(make_settings(max_tokens=80), output)
    anew = (output / "weights.hdf5").read_bytes()
    assert anew != before
    for path in output.glob("*.pt"):
        path.unlink()
    shutil.rmtree(output / "corpus")
    with pytest.raises(CorpusError, match="ELMO111"):
        pretrain(make_settings(), output)
    assert (output / "weights.hdf5").read_bytes() == anew


def test_only_a_run_with_the_same_settings_goes_on(make_settings, tmp_path):
    pretrain(make_settings(), tmp_path / "out")
    config = (tmp_path / "out" / "config.cfg").read_text()
    with pytest.raises(TrainingError, match=r"ELMO110.*\(paths.init_from\)"):
        start = {"paths.init_from": str(tmp_path / "out")}
        pretrain(make_settings(overrides=start), tmp_path / "out")
    for name, value in {"dropout": 0.2, "keep_best": True}.items():
        with pytest.raises(TrainingError, match=rf"ELMO110.*\(training\.{name}\)"):
            pretrain(make_settings(**{name: value}), tmp_path / "out")
    cache = tmp_path / "out" / "corpus" / "train" / "tokens.bin"
    tokens = cache.read_bytes()
    with pytest.raises(TrainingError, match=r"ELMO110.*corpus.train.*\(text\)"):
        text = tmp_path / "other.txt"
        text.write_text(made_up.text(70, 5))
        other = make_settings(overrides={"paths.train": str(text)})
        pretrain(other, tmp_path / "out")
    with pytest.raises(TrainingError, match=r"ELMO110.*\(\[vocabulary\]\)"):
        words = (tmp_path / "out" / "vocab.txt").read_text().splitlines()
        vocabulary = tmp_path / "vocab.txt"
        vocabulary.write_text("\n".join(words[:3] + words[:2:-1]) + "\n")
        other = make_settings(overrides={"vocabulary.path": str(vocabulary)})
        pretrain(other, tmp_path / "out")
    with pytest.raises(TrainingError, match=r"model\.lstm\.dim"):
        other = make_settings(overrides={"model.lstm.dim": 16})
        pretrain(other, tmp_path / "out")
    assert (tmp_path / "out" / "config.cfg").read_text() == config
    assert cache.read_bytes() == tokens  # of hours of work, maybe
    shutil.rmtree(cache.parent)
    with pytest.raises(TrainingError, match="ELMO110.*the text's documents"):
        other = make_settings(overrides={"paths.train": str(text)})
        pretrain(other, tmp_path / "out")
    shutil.rmtree(cache.parent)  # of the other text
    # Longer, and slower: what the error of a NaN advises.
    optimizer = {"learn_rate": 0.001, "warmup_steps": 5, "decay": "none"}
    longer = make_settings(max_tokens=400, grad_clip=0.5, optimizer=optimizer)
    pretrain(longer, tmp_path / "out")
    assert sorted(losses(tmp_path / "out")) == list(range(1, 11))


def change(path, key, value):
    """Change a field of a checkpoint; `...` takes it out."""
    saved = torch.load(path, weights_only=True)
    if callable(value):
        value(saved[key])
    else:
        saved[key] = value
    if value is ...:
        del saved[key]
    torch.save(saved, path)


@pytest.mark.parametrize(
    "key, value",
    [
        ("weights", ...),
        ("settings", ...),
        ("settings", 3),
        ("settings", "x"),
        ("positions", "none"),
        ("positions", [[-1, 0, 0]] * 4),
        ("positions", [[0, 0, 0]]),
        ("positions", [[0, 10**9, 0]] * 4),
        (
            "optimizer",
            lambda saved: [
                s.update(exp_avg=torch.zeros(1)) for s in saved["state"].values()
            ],
        ),
        ("optimizer", lambda saved: saved["state"].clear()),
        (
            "optimizer",
            lambda saved: [s.pop("exp_avg", None) for s in saved["state"].values()],
        ),
        ("positions", [[0, 0, 10**9]] * 4),
        ("states", [[3]]),
        ("states", [torch.zeros(1, 2, 2, 3), torch.zeros(1, 2, 2, 3)]),
        ("step", -3),
        ("optimizer", {}),
        ("losses", None),
        ("step", "four"),
    ],
)
def test_a_checkpoint_with_a_field_missing_or_wrong_counts_as_damaged(
    finished_run, tmp_path, key, value
):
    output = tmp_path / "out"
    shutil.copytree(finished_run / "out", output)
    settings = read_settings(finished_run / "config.cfg", {"paths.dev": None})
    change(output / checkpoint.CHECKPOINT, key, value)
    with pytest.warns(UserWarning, match=r"ELMOW003.*checkpoint\.pt.*at step 6"):
        pretrain(settings, output)
    for name in (checkpoint.CHECKPOINT, checkpoint.PREVIOUS):
        change(output / name, key, value)
    with pytest.raises(TrainingError, match=r"ELMO056.*checkpoint\.pt"):
        pretrain(settings, output)


def test_what_is_flushed_to_the_disk_is_open_for_writing(
    make_settings, tmp_path, monkeypatch
):
    """Windows refuses to flush a file that is open for reading."""
    fcntl = pytest.importorskip("fcntl")
    modes = []
    monkeypatch.setattr(
        os, "fsync", lambda file: modes.append(fcntl.fcntl(file, fcntl.F_GETFL))
    )
    pretrain(make_settings(max_tokens=40), tmp_path / "out")
    assert modes and all(mode & os.O_ACCMODE == os.O_RDWR for mode in modes)


def test_a_run_is_saved_by_time_too(make_settings, tmp_path, stop_at):
    settings = make_settings(checkpoint_steps=1000, checkpoint_minutes=1e-9)
    stop_at(3)
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings, tmp_path / "out")
    saved = torch.load(tmp_path / "out" / checkpoint.CHECKPOINT, weights_only=True)
    assert saved["step"] == 3


def test_a_full_disk_leaves_the_config(make_settings, tmp_path, monkeypatch):
    """It says how the text was tokenized."""

    def full(config, path):
        path.write_text("[nlp]")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    settings, config = make_settings(), tmp_path / "out" / "config.cfg"
    pretrain(settings, tmp_path / "out")
    before = config.read_text()
    monkeypatch.setattr(Config, "to_disk", full)
    with pytest.raises(OSError, match=re.escape(str(config))):
        pretrain(settings, tmp_path / "out")
    assert config.read_text() == before
    assert not list((tmp_path / "out").glob(".*"))


def test_two_runs_do_not_share_a_folder(make_settings, tmp_path):
    output = tmp_path / "out"
    with hold(output / training.LOCK_FILE):
        with pytest.raises(TrainingError, match="ELMO114.*out"):
            pretrain(make_settings(), output)
    assert not (output / "corpus").exists()


NOISY = {
    "keep_best": True, "eval_steps": 1, "eval_tokens": 0, "max_tokens": 800,
    "optimizer": {"learn_rate": 0.3, "decay": "none", "warmup_steps": 0},
}  # fmt: skip


def evaluations(output):
    """Perplexities by step, without the last line, which is the model's."""
    return [r["average"] for r in read_log(output)[:-1] if "average" in r]


def test_the_best_weights_are_the_best_on_one_text(make_settings, tmp_path):
    pretrain(make_settings(keep_best=True), tmp_path / "out")
    settings = make_settings(keep_best=True, eval_tokens=100)
    with pytest.raises(TrainingError, match=r"ELMO110.*\(training\.eval_tokens\)"):
        pretrain(settings, tmp_path / "out")
    (tmp_path / "other.txt").write_text(made_up.text(20, 3))
    other = {"paths.dev": str(tmp_path / "other.txt")}
    settings = make_settings(keep_best=True, overrides=other)
    with pytest.raises(TrainingError, match=r"ELMO110.*dev.*\(text\)"):
        pretrain(settings, tmp_path / "out")


def test_lost_best_weights_are_those_of_the_next_evaluation(
    make_settings, tmp_path, stop_at, capsys
):
    """They are in no checkpoint."""
    settings, output = make_settings(**{**NOISY, "max_tokens": 160}), tmp_path / "out"
    stop_at(3)
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings, output)
    stop_at(None)
    # At the second time, no update is left.
    for is_lost in (True, True, False):
        if is_lost:
            (output / "weights.hdf5").unlink()
        pretrain(settings, output)
        assert ("ELMOW015" in capsys.readouterr().out) == is_lost
        assert (output / "weights.hdf5").is_file()


def test_a_mean_of_another_part_of_the_run_begins_anew(
    make_settings, tmp_path, stop_at
):
    how = {"checkpoint_steps": 1, "max_tokens": 480}
    stop_at(8)
    with pytest.raises(KeyboardInterrupt):
        pretrain(make_settings(average_share=0.9, **how), tmp_path / "out")
    stop_at(None)
    for output in ("out", "whole"):
        pretrain(make_settings(average_share=0.2, **how), tmp_path / output)
    torch.testing.assert_close(*(weights(tmp_path / out) for out in ("out", "whole")))


def test_the_best_weights_are_those_that_are_written(make_settings, tmp_path):
    settings = make_settings(**{**NOISY, "max_tokens": 160})
    found = pretrain(settings, tmp_path / "out")
    averages = evaluations(tmp_path / "out")
    assert len(averages) == 4 and min(averages) < averages[-1]
    assert found.average == pytest.approx(min(averages), rel=1e-6)


def test_a_folder_that_has_the_name_of_a_model_is_that_folder(
    make_settings, tmp_path, monkeypatch
):
    settings = make_settings(**{**NOISY, "max_tokens": 160})
    monkeypatch.chdir(tmp_path)
    found = pretrain(settings, Path("en_elmo_sm"))
    averages = evaluations(tmp_path / "en_elmo_sm")
    assert found.average == pytest.approx(min(averages), rel=1e-6)


@pytest.mark.parametrize("other", ["text", "eval_tokens"])
def test_patience_is_with_the_same_held_out_text(
    make_settings, tmp_path, stop_at, other
):
    """The best perplexity so far says nothing of another text."""
    how = {"patience": 3, "eval_steps": 1, "eval_tokens": 0}
    stop_at(4)
    with pytest.raises(KeyboardInterrupt):
        pretrain(make_settings(**how), tmp_path / "out")
    stop_at(None)
    settings = make_settings(**{**how, "eval_tokens": 5 * (other == "eval_tokens")})
    if other == "text":
        (tmp_path / "dev.txt").write_text(made_up.text(9, seed=2))
    with pytest.raises(TrainingError, match="ELMO110"):
        pretrain(settings, tmp_path / "out")


def test_patience_counts_evaluations_that_were_made(make_settings, tmp_path, stop_at):
    """Not those that the intervals of today would have made before."""
    how = {"patience": 3, "max_tokens": 400, "checkpoint_steps": 1}
    stop_at(6)
    with pytest.raises(KeyboardInterrupt):
        pretrain(make_settings(eval_steps=100, **how), tmp_path / "out")
    stop_at(None)
    pretrain(make_settings(eval_steps=2, **how), tmp_path / "out")
    found = [line["step"] for line in read_log(tmp_path / "out") if "average" in line]
    assert found == [8, 10]


def test_patience_ends_a_run_without_gain(make_settings, tmp_path):
    settings = make_settings(patience=2, **NOISY)
    found = pretrain(settings, tmp_path / "out")
    averages = evaluations(tmp_path / "out")
    best = averages.index(min(averages))
    assert best == len(averages) - 3 < 17
    assert found.average == pytest.approx(averages[best], rel=1e-6)
    # The same command does not go on.
    assert pretrain(settings, tmp_path / "out") == found
    assert evaluations(tmp_path / "out") == averages
