from pathlib import Path

import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.config import read_settings

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize(
    "name, n_parameters", [("original", 93_600_848), ("small", 5_365_968)]
)
def test_the_configs_have_the_sizes_they_claim(name, n_parameters):
    path = CONFIGS / f"pretrain_{name}.cfg"
    settings = read_settings(path, {"paths.train": "corpus.txt"})
    with torch.device("meta"):
        bilm = BiLM(settings.options)
    assert sum(p.numel() for p in bilm.parameters()) == n_parameters


def test_the_original_config_is_the_recipe_of_the_paper():
    path = CONFIGS / "pretrain_original.cfg"
    settings = read_settings(path, {"paths.train": "corpus.txt"})
    training, optimizer = settings.training, settings.training.optimizer
    assert training.tokens_per_step == 3 * 128 * 20
    assert (training.state, training.max_epochs) == ("carried", 10)
    assert training.dropout == 0.1
    assert (training.grad_clip, training.loss_scale) == (10, 20)
    assert (optimizer.name, optimizer.learn_rate) == ("adagrad", 0.2)
    assert optimizer.initial_accumulator == 1
    assert training.softmax.n_samples == 8192
    assert settings.vocabulary.max_size == 793_471


@pytest.mark.parametrize(
    "name, value, problem",
    [
        ("training.rows", "many", "rows must be a whole number, not 'many'"),
        ("training.rows", 0, "rows must be >= 1"),
        ("training.dropout", 1.5, "dropout must be between 0 and 1"),
        ("training.grad_clip", 0, "grad_clip must be > 0"),
        ("training.state", "warm", "'carried' or 'zero'"),
        ("training.compile", 1, "compile must be true or false"),
        ("training.optimizer.name", "sgd", "'adamw' or 'adagrad'"),
        ("training.softmax.kind", "hierarchical", "'sampled' or 'full' or 'adaptive'"),
        ("training.softmax.cutoffs", [20, 10], "cutoffs must be rising"),
        ("corpus.ascii_quotes", -1, "ascii_quotes must be between 0 and 1"),
        ("vocabulary.path", 3, "path must be text"),
        ("training.steps", 3, r"steps: is no setting of \[training\]"),
        ("paths.train", None, r"paths\.train"),
    ],
)
def test_an_impossible_setting_is_named(make_settings, name, value, problem):
    with pytest.raises(CorpusError, match=problem):
        make_settings(overrides={name: value})
