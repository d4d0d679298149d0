import math
import warnings
from collections import Counter

import made_up
import pytest
from runs import assert_same_run, read_log

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.training import pretrain

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
