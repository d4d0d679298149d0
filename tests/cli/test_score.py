import json
import math
import subprocess
import sys
from itertools import repeat

import pytest
from spacy.cli._util import app
from typer.testing import CliRunner

from spacy_elmo.cli.inputs import batch_by_length

HEADER = "log2_forward log2_backward bits_per_character words forward backward unknown"


@pytest.fixture
def lines(texts):
    return [line for line in texts[1].read_text().splitlines() if line]


def test_a_line_for_each_line_of_the_text(elmo, trained, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the dog barks .\n\ndog\nthe qwertzu dog\n")
    result = elmo("score", path, "--weights", trained[0])
    assert result.exit_code == 0, result.output
    header, *rows = (line.split("\t") for line in result.output.splitlines())
    assert header == HEADER.split()
    assert [row[3] for row in rows] == ["the dog barks .", "", "dog", "the qwertzu dog"]
    for row in rows:
        n_words = len(row[3].split())
        assert [len(cell.split()) for cell in row[4:6]] == [n_words, n_words]
    assert [row[6] for row in rows] == ["", "", "", "1"]


def test_an_empty_text_of_json_lines_has_a_line_too(elmo, trained, tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "dog"}\n{"text": ""}\n{"tokens": []}\n')
    result = elmo("score", path, "--weights", trained[0], "--jsonl")
    found = [json.loads(line)["words"] for line in result.output.splitlines()]
    assert found == [["dog"], [], []]


def test_white_space_in_a_word_begins_neither_column_nor_word(elmo, trained, tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text(json.dumps({"tokens": ["the", "dog\tand moon"]}) + "\n")
    result = elmo("score", path, "--weights", trained[0])
    header, row = (line.split("\t") for line in result.output.splitlines())
    assert len(row) == len(header) and row[3] == "the dog\u00a0and\u00a0moon"


def test_json_lines_add_up_to_what_evaluate_says(elmo, trained, texts, lines, tmp_path):
    result = elmo("score", texts[1], "--weights", trained[0], "--jsonl")
    found = [json.loads(line) for line in result.output.splitlines()]
    found = [sentence for sentence in found if sentence["words"]]
    assert [" ".join(sentence["words"]) for sentence in found] == lines
    metrics = tmp_path / "metrics.json"
    assert elmo("evaluate", trained[0], texts[1], "-o", metrics).exit_code == 0
    wanted = json.loads(metrics.read_text())
    nats = -sum(s["log2_forward"] for s in found) * math.log(2)
    assert math.exp(nats / wanted["n_tokens"]) == pytest.approx(
        wanted["forward"], rel=1e-3
    )
    bits = -sum(s["log2_forward"] + s["log2_backward"] for s in found) / 2
    characters = sum(len(line) + 2 for line in lines)
    assert bits / characters == pytest.approx(wanted["bits_per_character"], rel=1e-3)


def test_standard_input_is_read_like_a_file(elmo, trained, texts):
    command = ["elmo", "score", "-", "--weights", str(trained[0])]
    piped = CliRunner().invoke(app, command, input=texts[1].read_bytes())
    assert piped.output == elmo("score", texts[1], "-w", trained[0]).output


def test_an_endless_text_is_scored_as_it_comes(trained):
    command = f"yes 'the dog barks' | {sys.executable} -m spacy elmo score -"
    done = subprocess.run(
        ["bash", "-c", f"{command} -w {trained[0]} | head -n 3"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 3
    assert "Traceback" not in done.stderr


def test_empty_lines_without_end_are_scored_as_they_come():
    assert next(batch_by_length(repeat(""), 3)) == ["", "", ""]


@pytest.mark.parametrize(
    "args, problem",
    [
        (["{text}", "-w", "{tiny}"], "ELMO054"),
        (["{text}", "-w", "nowhere"], "ELMO001"),
        (["{text}", "-w", ""], "ELMO001"),
        (["none.txt", "-w", "{model}"], "ELMO050"),
        (["/dev/null", "-w", "{model}"], "ELMO050"),
        (["{text}", "-w", "{model}", "--vocab", "none"], "ELMO051"),
    ],
)
def test_bad_input_gets_a_message(trained, texts, elmo, tiny_weights, args, problem):
    names = {"model": trained[0], "text": texts[1], "tiny": tiny_weights}
    result = elmo("score", *(arg.format(**names) for arg in args))
    assert result.exit_code == 1
    assert problem in result.text and "Traceback" not in result.text
