import json
import re
import shutil
import sys

import pytest

from spacy_elmo.bilm import BiLM


def test_a_model_is_written_and_its_perplexity_printed(trained):
    output, printed = trained
    bilm = BiLM.from_path(output)
    assert bilm.encode([["the", "dog"]])[0][0].shape == (2, 3, 24)
    log = [json.loads(line) for line in (output / "log.jsonl").open()]
    assert f"{log[-1]['average']:.2f}" in printed
    assert log[-1]["step"] == 2000 // 40


def test_the_same_command_goes_on(trained, elmo):
    output, _ = trained
    result = elmo("pretrain", output / "config.cfg", output)
    assert result.exit_code == 0, result.output
    longer = elmo(
        "pretrain", output / "config.cfg", output, "--training.max_tokens=2080"
    )
    assert longer.exit_code == 0, longer.output
    assert "Resuming after step 50 of 52." in longer.text
    log = [json.loads(line) for line in (output / "log.jsonl").open()]
    assert [line["step"] for line in log if "loss" in line] == list(range(1, 53))


def test_code_registers_a_tokenizer(elmo, config, tmp_path):
    code, text = tmp_path / "code.py", tmp_path / "corpus.txt"
    code.write_text(
        "import spacy\n"
        "from spacy.tokens import Doc\n"
        "@spacy.registry.tokenizers('elmo_test_commas')\n"
        "def commas():\n"
        "    return lambda nlp: lambda text: Doc(nlp.vocab, words=text.split(','))\n"
    )
    text.write_text("a b,c d,a b\n\n" * 30)
    tokenizer = tmp_path / "tokenizer.cfg"
    tokenizer.write_text(
        config.read_text() + "\n[nlp.tokenizer]\n@tokenizers = elmo_test_commas\n"
    )
    result = elmo(
        "pretrain", tokenizer, tmp_path / "out", "--code", code, "--paths.train", text,
        "--corpus.tokenized", "false", "--training.max_tokens", 40,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    words = (tmp_path / "out" / "vocab.txt").read_text().splitlines()
    assert words[3:] == ["a b", "c d"]


def test_commands_take_the_code_that_a_model_was_trained_with(
    elmo, trained, texts, tmp_path
):
    model = shutil.copytree(trained[0], tmp_path / "model")
    code, config = tmp_path / "code.py", model / "config.cfg"
    code.write_text(
        "import spacy\n"
        "@spacy.registry.tokenizers('elmo_test_spaces')\n"
        "def spaces():\n"
        "    return lambda nlp: spacy.blank('en').tokenizer\n"
    )
    text = config.read_text().replace("tokenized = true", "tokenized = false")
    config.write_text(text + "\n[nlp.tokenizer]\n@tokenizers = elmo_test_spaces\n")
    runs = [
        ("evaluate", model, texts[1]), ("score", texts[1], "-w", model),
        ("embed", texts[1], tmp_path / "o.h5", "-w", model),
        ("vectors", model, texts[1], tmp_path / "vectors.txt"),
        ("neighbors", texts[1], "the [dog]", "-w", model),
    ]  # fmt: skip
    for run in runs:
        result = elmo(*run, "--code", code)
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "name",
    ["elmo_options.json", "elmo.hdf5", "weights.hdf5", "vocab.txt", "config.cfg"],
)
def test_what_no_run_has_left_in_the_folder_stays_as_it_is(
    elmo, config, texts, tmp_path, name
):
    output = tmp_path / "official"
    output.mkdir()
    (output / name).write_text("{}")
    result = elmo("pretrain", config, output, "--paths.train", texts[0])
    assert result.exit_code == 1
    assert "ELMO111" in result.text and name in result.text.replace(" ", "")
    assert [p.name for p in output.iterdir() if p.name[0] != "."] == [name]


def test_what_the_message_about_a_tokenizer_advises(
    elmo, config, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "natto", None)
    text = tmp_path / "corpus.txt"
    text.write_text("나는 간다.\n\n" * 30, encoding="utf8")
    args = ["pretrain", config, tmp_path / "out", "--paths.train", text]
    args += ["--nlp.lang=ko", "--corpus.tokenized=false", "--training.max_tokens=40"]
    refused = elmo(*args)
    assert refused.exit_code == 1 and "ELMO136" in refused.text
    advice = re.search(r"(--nlp.tokenizer) '(.*?)'", refused.text)
    result = elmo(*args, *advice.groups())
    assert result.exit_code == 0, result.output
    words = (tmp_path / "out" / "vocab.txt").read_text(encoding="utf8").split()
    assert sorted(words[3:]) == [".", "간다", "나는"]


@pytest.mark.parametrize(
    "args, problem",
    [
        (["--paths.train", "none*"], "ELMO050"),
        ([], "paths.train"),
        (["--paths.trian", "{text}"], "[paths]: no setting is named 'trian'"),
        (["--paths.train", "{empty}"], "empty.txt"),
        (["--paths.train", "{text}", "--training.rows", "1000"], "ELMO052"),
        (["--paths.train", "{text}", "--model.lstm.dim", "no"], "ELMO007"),
        (["--paths.train", "{text}", "--training.sate", "zero"], "sate"),
        (["--paths.train", "{text}", "--vocabulary.path", "{text}"], "ELMO051"),
        (["--init_from", "{text}"], "No such option"),
    ],
)
def test_bad_input_gets_a_message(elmo, config, texts, tmp_path, args, problem):
    empty = tmp_path / "empty.txt"
    empty.touch()
    args = [arg.format(text=texts[0], empty=empty) for arg in args]
    result = elmo("pretrain", config, tmp_path / "new" / "out", *args)
    assert result.exit_code == (2 if "option" in problem else 1)
    assert problem in result.text and "Traceback" not in result.text
    # The cache of the corpus is kept: another setting may need no other.
    left = [p for p in (tmp_path / "new").rglob("*") if p.is_file()]
    assert "ELMO052" in problem or not left


def test_an_output_that_is_a_file_gets_a_message(elmo, config, texts, tmp_path):
    path = tmp_path / "out"
    path.touch()
    result = elmo("pretrain", config, path / "sub", "--paths.train", texts[0])
    assert result.exit_code == 1 and "Traceback" not in result.text
