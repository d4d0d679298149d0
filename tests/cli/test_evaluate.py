import errno
import json
import math
import shutil
from pathlib import Path

import h5py
import pytest
from thinc.api import Config

from spacy_elmo.bilm import BiLM


def test_a_trained_model_is_evaluated_as_at_the_end_of_its_training(
    trained, texts, elmo, tmp_path
):
    output, printed = trained
    metrics = tmp_path / "metrics.json"
    result = elmo("evaluate", output, texts[1], "--output", metrics)
    assert result.exit_code == 0, result.output
    found = json.loads(metrics.read_text())
    logged = [json.loads(line) for line in (output / "log.jsonl").open()][-1]
    keys = ("forward", "backward", "average", "bits_per_character", "n_tokens")
    for key in keys:
        assert found[key] == pytest.approx(logged[key], rel=1e-5)
    assert found["state"] == "zero"
    assert f"{found['average']:.2f}" in result.text


def test_state_language_and_vocabulary_are_options(trained, texts, elmo, tmp_path):
    output, _ = trained
    alone = tmp_path / "model"
    alone.mkdir()
    for name in ("options.json", "weights.hdf5"):
        shutil.copy(output / name, alone)
    vocab, metrics = ["--vocab", output / "vocab.txt"], tmp_path / "metrics.json"

    def run(*args):
        result = elmo("evaluate", alone / "weights.hdf5", texts[1], *vocab, *args,
                      "--output", metrics)  # fmt: skip
        assert result.exit_code == 0, result.output
        return json.loads(metrics.read_text())

    # A pipeline's config beside the weights is none of the model's.
    (alone / "config.cfg").write_text(
        '[nlp]\nlang = "de"\n[corpora]\n[corpus]\nfoo = 1'
    )
    tokenized = run("--tokenized")
    # The made-up text is nothing that a tokenizer would split further.
    assert run("--raw", "--lang", "de")["n_tokens"] == tokenized["n_tokens"]
    carried = run("--tokenized", "--state", "carried")
    assert carried["average"] != tokenized["average"]


def test_a_model_that_diverged_has_metrics(trained, texts, elmo, tmp_path):
    model = shutil.copytree(trained[0], tmp_path / "model")
    with h5py.File(model / "weights.hdf5", "a") as weights:
        weights["softmax/b"][0] = 1e4  # <S>, which the forward direction never predicts
    metrics = tmp_path / "metrics.json"
    result = elmo("evaluate", model, texts[1], "--output", metrics)
    assert result.exit_code == 0, result.output
    assert json.loads(metrics.read_text())["forward"] == math.inf


@pytest.mark.parametrize(
    "args, problem",
    [
        (["{tiny}", "{text}"], "ELMO054"),
        (["{model}", "none.txt"], "ELMO050"),
        (["nowhere", "{text}"], "ELMO001"),
        (["{model}", "{text}", "--output", "{text}"], "ELMO111"),
        (["{model}", "{text}", "--vocab", "{text}"], "must begin with"),
        (["{model}", "{text}", "--vocab", "{short}"], "has 3 words"),
        (["{model}", "{text}", "--vocab", "none"], "(--vocab)"),
        (["{model}", "{text}", "--lang", "xyz", "--raw"], "ELMO135"),
    ],
)
def test_bad_input_gets_a_message(trained, texts, elmo, tmp_path, args, problem):
    BiLM.from_path(trained[0]).save(tmp_path / "tiny")
    short = tmp_path / "short.txt"
    short.write_text("<S>\n</S>\n<UNK>\n")
    names = {"model": trained[0], "text": texts[1], "short": short}
    names["tiny"] = tmp_path / "tiny"
    result = elmo("evaluate", *(arg.format(**names) for arg in args))
    assert result.exit_code == 1
    assert problem in result.text and "Traceback" not in result.text


TOKENIZER = """
from spacy import registry
from spacy.tokens import Doc

@registry.tokenizers("evaluated_by_spaces.v1")
def create():
    return lambda nlp: lambda text: Doc(nlp.vocab, text.split())
"""


def test_its_temporary_files_are_closed_before_they_are_removed(
    trained, texts, elmo, mapped
):
    assert elmo("evaluate", trained[0], texts[1]).exit_code == 0
    assert mapped == [[]]


def test_a_tokenizer_of_ones_own_is_imported(trained, texts, elmo, tmp_path):
    """Whatever number of processes the training had: they would lack the code."""
    shutil.copytree(trained[0], tmp_path / "model")
    path = tmp_path / "model" / "config.cfg"
    config = Config().from_disk(path)
    tokenizer = {"@tokenizers": "evaluated_by_spaces.v1"}
    config["nlp"] = {"lang": "en", "tokenizer": tokenizer}
    config["corpus"].update(tokenized=False, n_process=2)
    config.to_disk(path)
    run = "evaluate", tmp_path / "model", texts[1]
    result = elmo(*run)
    assert result.exit_code == 1 and "evaluated_by_spaces.v1" in result.text
    (tmp_path / "code.py").write_text(TOKENIZER)
    result = elmo(*run, "--code", tmp_path / "code.py")
    assert result.exit_code == 0, result.output


def test_a_full_disk_leaves_the_metrics_before(
    trained, texts, elmo, tmp_path, monkeypatch
):
    write = Path.write_text

    def full(path, text, **how):
        if "metrics" not in path.name:
            return write(path, text, **how)
        path.write_bytes(b"{")
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "metrics.json"
    path.write_bytes(b"{}")
    monkeypatch.setattr(Path, "write_text", full)
    result = elmo("evaluate", trained[0], texts[1], "--output", path)
    assert result.exit_code == 1 and "metrics.json" in result.text
    assert path.read_bytes() == b"{}"
