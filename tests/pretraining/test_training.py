import math
import platform
import subprocess
import sys
import warnings
from collections import Counter

import made_up
import numpy as np
import pytest
import torch
from runs import assert_same_run, read_log, weights

from spacy_elmo.bilm import BiLM, precision
from spacy_elmo.errors import CorpusError, TrainingError
from spacy_elmo.pretraining import checkpoint, training
from spacy_elmo.pretraining.config import OptimizerSettings, read_settings
from spacy_elmo.pretraining.corpus import load_corpora
from spacy_elmo.pretraining.language_model import log_likelihoods
from spacy_elmo.pretraining.run import learn_rate, start_run
from spacy_elmo.pretraining.softmax import Softmax, draw_sample
from spacy_elmo.pretraining.training import pretrain
from spacy_elmo.pretraining.vocabulary import EOS_ID

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
    "best kept": {
        "keep_best": True, "eval_steps": 1, "eval_tokens": 0,
        "optimizer": {"learn_rate": 0.3, "decay": "none", "warmup_steps": 0},
    },
    "averaged": {"average_share": 0.6, "checkpoint_steps": 2},
}  # fmt: skip


@pytest.mark.parametrize("recipe", list(RECIPES.values())[:4], ids=list(RECIPES)[:4])
def test_a_language_is_learned_far_below_its_unigram_entropy(
    make_settings, tmp_path, recipe, fast_bfloat16
):
    n_steps = {"max_tokens": 8 * 12 * 110, "rows": 8, "unroll_steps": 12}
    often = {"log_steps": 10, "eval_steps": 100, "checkpoint_steps": 100}
    settings = make_settings(150, max_epochs=99, **n_steps, **often, **recipe)
    found = pretrain(settings, tmp_path / "out")
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
    make_settings, tmp_path, stop_at, recipe, fast_bfloat16
):
    settings = make_settings(log_steps=2, **recipe)
    pretrain(settings, tmp_path / "unbroken")
    broken = tmp_path / "broken"
    for n in (1, 5, 2):
        stop_at(n)
        with pytest.raises(KeyboardInterrupt):
            pretrain(settings, broken)
        with (broken / "log.jsonl").open("a") as log:
            log.write('{"step": 1, "lo')
    stop_at(None)
    pretrain(settings, broken)
    assert_same_run(broken, tmp_path / "unbroken")
    # A run that is complete only writes its model again.
    stop_at(0)
    pretrain(settings, broken)
    assert_same_run(broken, tmp_path / "unbroken")


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


@pytest.mark.parametrize("state", ["zero", "carried"])
def test_a_window_sees_what_the_windows_before_it_left(make_settings, tmp_path, state):
    """The loss of two short windows is that of a long one, in either state: what is
    carried is all that the second needs, and "zero" forgets it at each sentence."""
    settings = make_settings(state=state, dropout=0.0)
    corpus, _ = load_corpora(settings, tmp_path / "out")

    def mean_loss(unroll_steps, n):
        settings = make_settings(state=state, dropout=0.0, unroll_steps=unroll_steps)
        run = start_run(settings, corpus)
        words = draw_sample(None, corpus.vocab_size, corpus.vocab_size)
        carried, found = run.state, []
        for _ in range(n):
            loss, carried = run.objective(run.rows.read(), carried, words)
            found.append(loss.item())
        return np.mean(found)

    assert abs(mean_loss(5, 8) - mean_loss(40, 1)) < 1e-6


def test_a_carried_state_crosses_the_ends_of_sentences(make_settings, tmp_path):
    """The first window of each row has the loss of the beginning of its document by
    `log_likelihoods`, which reads on from sentence to sentence."""
    settings = make_settings(state="carried", dropout=0.0)
    corpus, _ = load_corpora(settings, tmp_path / "out")
    run, n = start_run(settings, corpus), settings.training.unroll_steps
    first = corpus.epoch(0, settings.training.seed)[: settings.training.rows]
    documents = [corpus.document(i) for i in first]
    assert all(EOS_ID in document[: n - 1] for document in documents)
    words = draw_sample(None, corpus.vocab_size, corpus.vocab_size)
    found, _ = run.objective(run.rows.read(), run.state, words)
    nats = log_likelihoods(run.bilm, run.softmax, documents, corpus.words)
    wanted = -np.mean([of_document[:, :n] for of_document in nats])
    assert found.item() == pytest.approx(wanted, abs=1e-5)


def test_nothing_warns_and_the_files_are_complete(make_settings, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pretrain(make_settings(dev=False), tmp_path / "out") is None
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "options.json", "weights.hdf5", "vocab.txt", "config.cfg", "log.jsonl",
        "checkpoint.pt", "checkpoint.previous.pt", "corpus",
    }  # fmt: skip
    again = read_settings(tmp_path / "out" / "config.cfg")
    assert again == make_settings(dev=False)
    assert len(BiLM.from_path(tmp_path / "out").encode([["dog"]])[0][0]) == 1


def test_held_out_files_are_reported_each(make_settings, tmp_path):
    folder = tmp_path / "held_out"
    folder.mkdir()
    for seed, name in enumerate(("a.txt", "b.txt")):
        (folder / name).write_text(made_up.text(10, seed))
    settings = make_settings(overrides={"paths.dev": str(folder)})
    found = pretrain(settings, tmp_path / "out")
    assert list(found.files) == ["a.txt", "b.txt"]
    curve = [line for line in read_log(tmp_path / "out") if "average" in line]
    assert all(line["files"].keys() == found.files.keys() for line in curve)


def test_precision_and_compiling_are_chosen(
    make_settings, tmp_path, monkeypatch, capsys
):
    """By the processor, and by the length of the run where there is a compiler."""
    compiled = []
    monkeypatch.setattr(training, "use_fusion", compiled.append)
    monkeypatch.setenv("CXX", "true")  # there, and never run
    settings = make_settings(dev=False, precision="auto", compile="auto")
    for fast, least, wanted in (
        (True, 9, "Products in bfloat16, not compiled"),
        (False, 8, "Products in float32, compiled"),
    ):
        monkeypatch.setattr(precision, "has_fast_bfloat16", lambda _, fast=fast: fast)
        monkeypatch.setattr(training, "MIN_STEPS_TO_COMPILE", least)
        pretrain(settings, tmp_path / wanted)
        assert wanted in " ".join(capsys.readouterr().out.split())
        assert compiled.pop() is not fast
    with pytest.warns(UserWarning, match="ELMOW002.*using float32"):
        pretrain(make_settings(dev=False, precision="bfloat16"), tmp_path / "asked")
    assert "Products in float32" in " ".join(capsys.readouterr().out.split())


def test_a_vocabulary_without_the_words_of_the_text_is_noticed(make_settings, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("<S>\n</S>\n<UNK>\nDer\nHund\n")
    given = {"vocabulary.path": str(vocabulary)}
    with pytest.raises(CorpusError, match="ELMO059.*vocab.txt has none of the words"):
        pretrain(make_settings(overrides=given), tmp_path / "out")
    vocabulary.write_text("<S>\n</S>\n<UNK>\nthe\n")
    with pytest.warns(UserWarning, match=r"ELMOW006.* 9\d% of the words") as found:
        pretrain(make_settings(overrides=given), tmp_path / "out")
    assert ["of paths.train" in str(w.message) for w in found] == [True, False]


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


FAULTS = """
import resource
import torch
from spacy_elmo.pretraining.training import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

pages = 5 * 40_000_000 / resource.getpagesize()
print(faults() > 0.9 * pages)
keep_freed_memory()
faults()
print(faults() < 0.1 * pages)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_freed_memory_is_kept_for_the_next_step():
    command = [sys.executable, "-c", FAULTS]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]
