import subprocess
import sys

COMMANDS = ("pretrain", "evaluate", "info")


def test_the_commands_have_their_help(elmo):
    listed = elmo("--help").output
    for name in COMMANDS:
        assert name in listed
        result = elmo(name, "--help")
        assert result.exit_code == 0 and "Usage" in result.text


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
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    others, own = result.stdout.splitlines()
    for heavy in ("torch", "h5py", "numpy", "pandas"):
        assert f"'{heavy}" not in others
    for part in ("bilm", "layers", "pipeline", "pretraining", "weights"):
        assert f"spacy_elmo.{part}" not in own
