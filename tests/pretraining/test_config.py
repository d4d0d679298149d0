from pathlib import Path

import pytest
import torch
from spacy.cli._util import parse_config_overrides
from thinc.api import Config

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.config import read_config, read_settings

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize(
    "name, n_parameters", [("original", 93_600_848), ("small", 5_365_968)]
)
def test_the_configs_have_the_sizes_they_claim(name, n_parameters):
    path = CONFIGS / f"pretrain_{name}.cfg"
    settings = read_settings(path, {"paths.train": "corpus.txt"})
    with torch.device("meta"):
        bilm = BiLM(settings.options)
    assert bilm.n_parameters == n_parameters


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
        ("training.rows", "many", "rows must be a valid integer, not 'many'"),
        ("training.rows", 0, "rows must be greater than or equal to 1, not 0"),
        ("training.dropout", 1.0, "dropout must be less than 1, not 1.0"),
        ("training.optimizer.beta1", 1.0, "beta1 must be less than 1, not 1.0"),
        ("training.seed", 1 << 32, "seed must be less than 4294967296"),
        ("training.grad_clip", 0, "grad_clip must be greater than 0"),
        ("training.max_epochs", float("nan"), "max_epochs must be a finite number"),
        ("training.state", "warm", "'carried' or 'zero', not 'warm'"),
        ("training.compile", "on", "compile must be true, false or 'auto'"),
        ("training.keep_best", "True", "keep_best must be true or false, not 'True'"),
        ("training.optimizer.name", "sgd", "'adamw' or 'adagrad', not 'sgd'"),
        ("training.softmax.kind", "hierarchical", "'sampled' or 'full'"),
        (
            "training.softmax.n",
            3,
            r"\[training.softmax\]: no setting is named 'n'. There are kind, n_",
        ),
        (
            "training.max_steps",
            20,
            "'max_steps'. Did you mean max_tokens or max_epochs?",
        ),
        ("training.patience", 3, "training.patience: needs held-out text.*paths.dev"),
        (
            "training.optimizer.learn_rate",
            {"@schedules": "warmup_linear.v1"},
            "learn_rate must be a valid number, not",
        ),
        ("training.precision", {"foo": 1}, "precision must be 'float32', 'bfloat16'"),
        ("corpus.ascii_quotes", -1, "ascii_quotes must be greater than or equal to 0"),
        ("corpus.weights", {"a": -1.0}, "weights.a must be greater than or equal to 0"),
        ("vocabulary.path", 3, "path must be a valid string, not 3"),
        ("paths.train", 0.5, "paths.train must be a valid list, not 0.5"),
        ("training.steps", 3, r"\[training\]: no setting is named 'steps'"),
        ("paths.train", None, "paths.train: is null: give the text by --paths.train"),
        (
            "model.lstm.cells",
            512,
            r"\[model.lstm\]: no setting is named 'cells'.* There are dim, proj",
        ),
        ("model.char_cn", {}, r"\[model\].*'char_cn'. Did you mean char_cnn"),
        ("paths.trian", "corpus.txt", "'trian'. Did you mean train. There are train"),
    ],
)
def test_an_impossible_setting_is_named(make_settings, name, value, problem):
    with pytest.raises(CorpusError, match=problem):
        make_settings(dev=False, overrides={name: value})


@pytest.mark.parametrize(
    "content, problem",
    [
        ("[components]\n", "ELMO051.*is for 'spacy train'.*pretrain_small.cfg"),
        ("The dog barks.\n", "ELMO051.*is not a config .*no section headers"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, content, problem):
    path = tmp_path / "mine.cfg"
    path.write_text(content)
    with pytest.raises(CorpusError, match=problem) as found:
        read_settings(path)
    assert str(path) in str(found.value)


def test_settings_of_sections_that_a_config_leaves_out_can_be_given(tmp_path):
    whole = Config().from_disk(CONFIGS / "pretrain_small.cfg", interpolate=False)
    Config({"model": whole["model"]}).to_disk(tmp_path / "config.cfg")
    given = {"paths.train": "corpus.txt", "training.optimizer.learn_rate": 0.1}
    settings = read_settings(tmp_path / "config.cfg", given)
    assert settings.paths.train == ["corpus.txt"]
    assert settings.training.optimizer.learn_rate == 0.1


@pytest.mark.parametrize("given", [{}, {"training.rows": 2}, {"nlp.lang": "de"}])
def test_dollars_are_read_alike_with_overrides_and_without(tmp_path, given):
    path = tmp_path / "config.cfg"
    path.write_text(
        '[paths]\ntrain = "we$$rd.txt"\ndev = ${paths.train}\n[nlp]\nlang = "en"\n'
    )
    for _ in range(2):  # also as it is written
        config = read_config(path, given)
        assert config["paths"] == {"train": "we$rd.txt", "dev": "we$rd.txt"}
        config.to_disk(path)
    assert read_config(path, {"paths.train": "a$b"})["paths"]["train"] == "a$b"


@pytest.mark.parametrize(
    "name", ["paths.train", "paths.dev", "paths.init_from", "vocabulary.path"]
)
def test_an_empty_path_is_an_error(make_settings, name):
    with pytest.raises(CorpusError, match=f"{name}: is empty"):
        make_settings(dev=False, overrides={name: ""})


def test_a_folder_of_a_year_is_a_path():
    overrides = parse_config_overrides(["--paths.train", "2021"])
    settings = read_settings(CONFIGS / "pretrain_small.cfg", overrides)
    assert settings.paths.train == ["2021"]


def test_a_setting_of_nlp_that_spacy_does_not_know_is_refused():
    """spaCy would leave it out, and take its own tokenizer."""
    given = {"paths.train": "a.txt", "nlp.tokeniser": {"@tokenizers": "mine.v1"}}
    with pytest.raises(CorpusError, match=r"\[nlp\].*'tokeniser'.*mean tokenizer"):
        read_settings(CONFIGS / "pretrain_small.cfg", given)
