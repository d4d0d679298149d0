import json
import math
import warnings
from collections import Counter

import made_up
import numpy as np
import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import TrainingError
from spacy_elmo.pretraining import checkpoint, step, training
from spacy_elmo.pretraining.config import OptimizerSettings, read_settings
from spacy_elmo.pretraining.corpus import load_corpora
from spacy_elmo.pretraining.language_model import read_softmax
from spacy_elmo.pretraining.optimizer import learn_rate
from spacy_elmo.pretraining.run import start_run
from spacy_elmo.pretraining.softmax import Softmax
from spacy_elmo.pretraining.training import pretrain


def read_log(output):
    return [json.loads(line) for line in (output / "log.jsonl").open()]


def losses(output):
    return {line["step"]: line["loss"] for line in read_log(output) if "loss" in line}


def weights(output):
    bilm = BiLM.from_path(output)
    softmax = read_softmax(output, bilm.options.lstm.projection_dim)
    return [*bilm.parameters(), *softmax.parameters()]


def assert_same_run(output, wanted):
    """Losses, held-out perplexities and weights are equal to the last bit."""
    lines = [[{**r, "seconds": 0} for r in read_log(o)] for o in (output, wanted)]
    assert lines[0] == lines[1]
    for mine, theirs in zip(weights(output), weights(wanted)):
        assert torch.equal(mine, theirs)


@pytest.fixture
def stop_at(monkeypatch):
    """stop_at(n) kills the run at the n-th update from now; stop_at(None) not."""
    update = step.train_step

    def stop(n):
        left = iter(range(n)) if n is not None else None

        def train_step(*args):
            if left is not None and next(left, None) is None:
                raise KeyboardInterrupt
            return update(*args)

        monkeypatch.setattr(training, "train_step", train_step)

    return stop


RECIPES = {
    "adamw, zero, full": {"state": "zero", "softmax": {"kind": "full"}},
    "adamw, carried, sampled": {
        "state": "carried", "softmax": {"kind": "sampled", "n_samples": 20}
    },
    "adagrad as in the paper": {
        "state": "carried", "softmax": {"kind": "sampled", "n_samples": 20},
        "loss_scale": 10.0, "grad_clip": 10.0,
        "optimizer": {"name": "adagrad", "learn_rate": 0.3, "decay": "none",
                      "warmup_steps": 0},
    },
    "bfloat16": {"precision": "bfloat16"},
    "averaged": {"average_share": 0.6, "checkpoint_steps": 2},
}  # fmt: skip


@pytest.mark.parametrize("recipe", list(RECIPES.values())[:3], ids=list(RECIPES)[:3])
def test_a_language_is_learned_far_below_its_unigram_entropy(
    make_settings, tmp_path, recipe
):
    n_steps = {"max_tokens": 8 * 12 * 110, "rows": 8, "unroll_steps": 12}
    often = {"log_steps": 10, "eval_steps": 100, "checkpoint_steps": 100}
    settings = make_settings(150, max_epochs=99, **n_steps, **often, **recipe)
    found = pretrain(settings, tmp_path / "out", silent=True)
    counts = Counter(made_up.text(150).replace("\n", " E ").split())
    total = sum(counts.values())
    entropy = -sum(n / total * math.log(n / total) for n in counts.values())
    log = read_log(tmp_path / "out")
    assert log[0]["loss"] > 0.8 * entropy
    for perplexity in (found.forward, found.backward):
        assert math.log(perplexity) < 0.55 * entropy
    assert log[-1]["final"] and log[-1]["average"] == found.average
    assert log[-1]["tokens"] == 8 * 12 * 110


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    make_settings, tmp_path, stop_at, recipe
):
    settings = make_settings(log_steps=2, **recipe)
    pretrain(settings, tmp_path / "unbroken", silent=True)
    broken = tmp_path / "broken"
    for n in (1, 5, 2):
        stop_at(n)
        with pytest.raises(KeyboardInterrupt):
            pretrain(settings, broken, silent=True)
        with (broken / "log.jsonl").open("a") as log:
            log.write('{"step": 1, "lo')
    stop_at(None)
    pretrain(settings, broken, silent=True)
    assert_same_run(broken, tmp_path / "unbroken")
    # A run that is complete only writes its model again.
    stop_at(0)
    pretrain(settings, broken, silent=True)
    assert_same_run(broken, tmp_path / "unbroken")


def test_the_checkpoint_before_a_truncated_one_is_used(make_settings, tmp_path):
    settings = make_settings()
    pretrain(settings, tmp_path / "unbroken", silent=True)
    broken = tmp_path / "broken"
    pretrain(settings, broken, silent=True)
    last, previous = broken / checkpoint.CHECKPOINT, broken / checkpoint.PREVIOUS
    last.write_bytes(last.read_bytes()[:-1000])
    (broken / f".{checkpoint.CHECKPOINT}.left").touch()
    with pytest.warns(UserWarning, match=r"ELMOW003.*checkpoint\.pt.*at step 6"):
        pretrain(settings, broken, silent=True)
    assert_same_run(broken, tmp_path / "unbroken")
    assert not list(broken.glob(".*"))
    for path in (last, previous):
        path.write_bytes(b"")
    with pytest.raises(TrainingError, match=r"ELMO056.*checkpoint\.pt"):
        pretrain(settings, broken, silent=True)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    make_settings, tmp_path, monkeypatch
):
    def full(checkpoint, path):
        path.write_bytes(b"part")
        raise RuntimeError("PytorchStreamWriter failed writing file")

    settings = make_settings()
    pretrain(settings, tmp_path / "out", silent=True)
    files = sorted((tmp_path / "out").glob("*.pt"))
    before = [path.read_bytes() for path in files]
    monkeypatch.setattr(torch, "save", full)
    longer = make_settings(max_tokens=480)
    with pytest.raises(TrainingError, match="ELMO057.*Make room"):
        pretrain(longer, tmp_path / "out", silent=True)
    assert [path.read_bytes() for path in files] == before
    assert not list((tmp_path / "out").glob(".*"))


def test_the_weights_that_are_written_are_the_mean_over_the_last_part(
    make_settings, tmp_path
):
    def saved():
        path = tmp_path / "out" / checkpoint.CHECKPOINT
        return torch.load(path, weights_only=True)["weights"]["1.weight"]

    every = {"average_share": 0.5, "checkpoint_steps": 1, "rows": 5}
    flat = {"learn_rate": 0.01, "decay": "none", "warmup_steps": 0}
    run = []
    for n_steps in range(1, 9):
        settings = make_settings(max_tokens=50 * n_steps, optimizer=flat, **every)
        pretrain(settings, tmp_path / "out", silent=True)
        # The run itself goes on from its own weights.
        run.append(saved())
    pretrain(settings, tmp_path / "unbroken", silent=True)
    *_, found, _ = weights(tmp_path / "unbroken")
    torch.testing.assert_close(found, torch.stack(run[4:]).mean(0))
    assert not torch.allclose(found, run[-1])


def test_only_a_run_with_the_same_settings_goes_on(make_settings, tmp_path):
    pretrain(make_settings(), tmp_path / "out", silent=True)
    config = (tmp_path / "out" / "config.cfg").read_text()
    with pytest.raises(TrainingError, match=r"ELMO055.*training\.dropout"):
        pretrain(make_settings(dropout=0.2), tmp_path / "out", silent=True)
    with pytest.raises(TrainingError, match="another text .the text's documents"):
        text = tmp_path / "other.txt"
        text.write_text(made_up.text(70, 5))
        other = make_settings(overrides={"paths.train": str(text)})
        pretrain(other, tmp_path / "out", silent=True)
    with pytest.raises(TrainingError, match=r"model\.lstm\.dim"):
        other = make_settings(overrides={"model.lstm.dim": 16})
        pretrain(other, tmp_path / "out", silent=True)
    assert (tmp_path / "out" / "config.cfg").read_text() == config
    # Longer, and slower: what the error of a NaN advises.
    optimizer = {"learn_rate": 0.001, "warmup_steps": 5, "decay": "none"}
    longer = make_settings(max_tokens=400, grad_clip=0.5, optimizer=optimizer)
    pretrain(longer, tmp_path / "out", silent=True)
    assert sorted(losses(tmp_path / "out")) == list(range(1, 11))


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
        pretrain(make_settings(), tmp_path / "out", silent=True)
    rows = (tmp_path / "out" / "batch-5.txt").read_text().splitlines()
    assert len(rows) == 4 and all(len(row.split()) == 10 for row in rows)
    saved = torch.load(tmp_path / "out" / checkpoint.CHECKPOINT, weights_only=True)
    assert saved["step"] == 3


@pytest.mark.parametrize("state", ["zero", "carried"])
def test_a_window_sees_what_the_windows_before_it_left(make_settings, tmp_path, state):
    """The loss of two short windows is that of a long one, in either state: what is
    carried is all that the second needs, and "zero" forgets it at each sentence."""
    settings = make_settings(state=state, dropout=0.0)
    corpus, _ = load_corpora(settings, tmp_path / "out", silent=True)

    def mean_loss(unroll_steps, n):
        settings = make_settings(state=state, dropout=0.0, unroll_steps=unroll_steps)
        run = start_run(settings, corpus)
        states, found = None, []
        for _ in range(n):
            batch = run.rows.read()
            h, states = run.towers(batch, states)
            targets = torch.from_numpy(corpus.in_vocabulary(batch.targets.reshape(-1)))
            found.append(run.softmax(h, targets, None).item())
        return np.mean(found)

    assert abs(mean_loss(5, 8) - mean_loss(40, 1)) < 1e-6


def test_states_differ_where_sentences_meet(make_settings, tmp_path):
    found = []
    for state in ("zero", "carried"):
        settings = make_settings(state=state, dropout=0.0, max_tokens=40)
        pretrain(settings, tmp_path / state, silent=True)
        found.append(losses(tmp_path / state)[1])
    assert found[0] != found[1]


def test_nothing_warns_and_the_files_are_complete(make_settings, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pretrain(make_settings(dev=False), tmp_path / "out", silent=True) is None
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "options.json", "weights.hdf5", "vocab.txt", "config.cfg", "log.jsonl",
        "checkpoint.pt", "checkpoint.previous.pt", "corpus",
    }  # fmt: skip
    again = read_settings(tmp_path / "out" / "config.cfg")
    assert again == make_settings(dev=False)
    assert len(BiLM.from_path(tmp_path / "out").encode([["dog"]])[0][0]) == 1


def test_the_learning_rate_warms_up_and_decays():
    settings = {"learn_rate": 1.0, "warmup_steps": 4}
    cosine, linear, flat = (
        OptimizerSettings(decay=decay, **settings)
        for decay in ("cosine", "linear", "none")
    )
    assert [learn_rate(cosine, k, 12) for k in range(4)] == [0.25, 0.5, 0.75, 1]
    assert learn_rate(cosine, 8, 12) == pytest.approx(0.5)
    assert learn_rate(linear, 10, 12) == pytest.approx(0.25)
    assert learn_rate(flat, 11, 12) == 1
    # Over the last quarter only
    late = OptimizerSettings(decay="linear", decay_share=0.25, **settings)
    assert [learn_rate(late, k, 16) for k in (4, 12)] == [1, 1]
    assert learn_rate(late, 14, 16) == pytest.approx(0.5)
