import json
import os
import subprocess
import sys

import pytest
import spacy
import typer

from spacy_elmo.cli import app

COMMANDS = typer.main.get_command(app).commands


def test_the_commands_are_those_that_were_designed():
    assert set(COMMANDS) == {
        "pretrain", "evaluate", "score", "embed", "vectors", "mix", "neighbors",
        "plot", "download", "info", "init", "package",
    }  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_its_help(elmo, name):
    result = elmo(name, "--help")
    assert result.exit_code == 0 and f"elmo {name} [OPTIONS]" in result.text
    assert all(p.help for p in COMMANDS[name].params)


def test_the_list_of_commands_has_whole_sentences(elmo):
    _, rows = elmo("--help").output.split("Commands:")
    for row in rows.strip().splitlines():
        assert row.endswith(".") and not row.endswith("...")


def test_warnings_are_not_among_the_results(tiny_weights, tmp_path, fast_bfloat16):
    """Where bfloat16 is slow, an `elmo` says so: JSON stays JSON."""
    nlp = spacy.blank("en")
    model = {"weights": str(tiny_weights), "precision": "bfloat16"}
    nlp.add_pipe("elmo", config={"model": model})
    nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "text.txt").write_text("They play on the street.\n")
    code = (
        "import spacy_elmo.bilm.precision as p; p.has_fast_bfloat16 = lambda _: False\n"
        "from spacy.cli import setup_cli; setup_cli()"
    )
    arguments = ["text.txt", "A [play]", "--pipeline", "pipeline", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, "elmo", "neighbors", *arguments],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout) and "ELMOW002" in done.stderr


def test_what_a_terminal_cannot_show_is_no_error(tiny_weights, tmp_path):
    (tmp_path / "text.txt").write_text("Schöne Stücke\n", encoding="utf8")
    arguments = ["text.txt", "[Stücke] gut", "--weights", str(tiny_weights)]
    done = subprocess.run(
        [sys.executable, "-m", "spacy", "elmo", "neighbors", *arguments],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[St\\xfccke] gut" in done.stdout


def test_an_interrupt_is_said(elmo, monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("spacy_elmo.weights.resolve", interrupt)
    result = elmo("info", "en_elmo_sm")
    assert result.exit_code == 130 and "Interrupted" in result.text
