import math
import os
import signal

import pytest
import torch
from runs import assert_same_run, weights

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import TrainingError
from spacy_elmo.pretraining import checkpoint, loop
from spacy_elmo.pretraining.softmax import Softmax
from spacy_elmo.pretraining.training import pretrain


def test_the_weights_that_are_written_are_the_mean_over_the_last_part(
    make_settings, tmp_path
):
    def saved():
        path = tmp_path / "out" / checkpoint.CHECKPOINT
        return torch.load(path, weights_only=True)["weights"]["1.weight"]

    every = {"average_share": 0.5, "checkpoint_steps": 100, "rows": 5}
    flat = {"learn_rate": 0.01, "decay": "none", "warmup_steps": 0}
    run = []
    for n_steps in range(1, 9):
        settings = make_settings(max_tokens=50 * n_steps, optimizer=flat, **every)
        pretrain(settings, tmp_path / "out")
        # The run itself goes on from its own weights.
        run.append(saved())
    pretrain(settings, tmp_path / "unbroken")
    *_, found, _ = weights(tmp_path / "unbroken")
    torch.testing.assert_close(found, torch.stack(run[4:]).mean(0))
    assert not torch.allclose(found, run[-1])


def test_a_run_that_diverges_at_once_still_keeps_a_best_model(make_settings, tmp_path):
    often = {"keep_best": True, "eval_steps": 1, "eval_tokens": 0, "max_tokens": 200}
    wild = {"learn_rate": 1000.0, "decay": "none", "warmup_steps": 0}
    settings = make_settings(**often, optimizer=wild)
    found = pretrain(settings, tmp_path / "out")
    assert found.average == math.inf
    BiLM.from_path(tmp_path / "out")


def test_a_run_that_diverges_later_says_so(make_settings, tmp_path, capsys):
    often = {"keep_best": True, "eval_steps": 1, "eval_tokens": 0, "max_tokens": 80}
    first = pretrain(make_settings(**often), tmp_path / "start")
    assert "ELMOW014" not in capsys.readouterr().out
    wild = {"learn_rate": 10.0, "decay": "none", "warmup_steps": 0}
    settings = make_settings(**often, optimizer=wild)
    paths = settings.paths.model_copy(update={"init_from": str(tmp_path / "start")})
    pretrain(settings.model_copy(update={"paths": paths}), tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    assert "ELMOW014" in said and f"was {first.average:.1f} after 0" in said


@pytest.mark.parametrize("where, what", [(0, "loss"), (1, "norm of the gradients")])
def test_a_loss_that_is_not_finite_stops_with_step_and_batch(
    make_settings, tmp_path, monkeypatch, where, what
):
    compute = Softmax.forward

    def broken(self, *args):
        loss = compute(self, *args)
        calls.append(1)
        if len(calls) < 5:
            return loss
        # Zero, with a gradient of inf * 0.
        return loss * float("nan") if where == 0 else (loss - loss).sqrt()

    calls = []
    monkeypatch.setattr(Softmax, "forward", broken)
    with pytest.raises(TrainingError, match=f"ELMO053.*The {what} is .* at step 5 "):
        pretrain(make_settings(), tmp_path / "out")
    rows = (tmp_path / "out" / "batch-5.txt").read_text().splitlines()
    assert len(rows) == 4 and all(len(row.split()) == 10 for row in rows)
    saved = torch.load(tmp_path / "out" / checkpoint.CHECKPOINT, weights_only=True)
    assert saved["step"] == 3


def test_a_signal_saves_and_says_how_to_go_on(make_settings, tmp_path, monkeypatch):
    settings = make_settings(checkpoint_steps=1000, log_steps=3)
    handler = signal.getsignal(signal.SIGTERM)
    pretrain(settings, tmp_path / "unbroken")
    update, broken = loop.train_step, tmp_path / "broken"
    arriving = {5: signal.SIGTERM, 7: signal.SIGINT}

    def train_step(run, batch):
        if run.step + 1 in arriving:
            os.kill(os.getpid(), arriving[run.step + 1])
        return update(run, batch)

    monkeypatch.setattr(loop, "train_step", train_step)
    for n in arriving:
        with pytest.raises(TrainingError, match=f"ELMO058.*step {n} of 8.*again"):
            pretrain(settings, broken)
        assert not (broken / "weights.hdf5").exists()
    assert signal.getsignal(signal.SIGTERM) == handler
    monkeypatch.setattr(loop, "train_step", update)
    pretrain(settings, broken)
    assert_same_run(broken, tmp_path / "unbroken")


def test_a_signal_that_is_ignored_stays_so(make_settings, tmp_path, monkeypatch):
    """As a script's `pretrain ... &` has it for SIGINT."""
    update = loop.train_step

    def train_step(run, batch):
        os.kill(os.getpid(), signal.SIGINT)
        return update(run, batch)

    monkeypatch.setattr(loop, "train_step", train_step)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pretrain(make_settings(), tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "out" / "weights.hdf5").is_file()


def test_ctrl_c_while_torch_compiles_is_no_traceback(
    make_settings, tmp_path, monkeypatch
):
    """The signal reaches the compiler too, whose end is an exception in the step."""
    settings = make_settings(checkpoint_steps=2)
    pretrain(settings, tmp_path / "unbroken")
    update, broken = loop.train_step, tmp_path / "broken"

    def train_step(run, batch):
        if run.step + 1 == 5:
            os.kill(os.getpid(), signal.SIGINT)
            raise RuntimeError("C++ compile error")
        return update(run, batch)

    monkeypatch.setattr(loop, "train_step", train_step)
    with pytest.raises(TrainingError, match="ELMO116.*Run the same command again"):
        pretrain(settings, broken)
    monkeypatch.setattr(loop, "train_step", update)
    pretrain(settings, broken)
    assert_same_run(broken, tmp_path / "unbroken")
