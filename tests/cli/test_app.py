import subprocess
import sys
from importlib.metadata import entry_points

import pytest

COMMANDS = ("pretrain", "evaluate", "info")


def python(*args):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True)


def test_the_commands_have_their_help(elmo):
    listed = elmo("--help").output
    for name in COMMANDS:
        assert name in listed
        result = elmo(name, "--help")
        assert result.exit_code == 0 and "Usage" in result.text


@pytest.mark.skipif(
    not entry_points(group="spacy_cli", name="elmo"), reason="is not installed"
)
def test_spacy_finds_the_commands():
    result = python("-m", "spacy", "elmo", "--help")
    assert result.returncode == 0, result.stderr
    assert all(name in result.stdout for name in COMMANDS)


def test_every_spacy_command_imports_it_and_pays_nothing():
    code = """
import sys
import spacy.cli
before = set(sys.modules)
import spacy_elmo.cli
new = set(sys.modules) - before
print(sorted(m for m in new if not m.startswith("spacy_elmo")))
print(sorted(m for m in new if m.startswith("spacy_elmo")))
"""
    result = python("-W", "error", "-c", code)
    assert result.returncode == 0, result.stderr
    others, own = result.stdout.splitlines()
    for heavy in ("torch", "h5py", "numpy", "pandas"):
        assert f"'{heavy}" not in others
    for part in ("bilm", "layers", "pipeline", "pretraining", "weights"):
        assert f"spacy_elmo.{part}" not in own
