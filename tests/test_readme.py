"""Each snippet of README runs as it stands."""

import re
from pathlib import Path

import pytest
from thinc.api import Config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf8")


def snippets(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def shapes(snippet):
    """`expression  # ... (1, 2, 3)` -> [(expression, (1, 2, 3))]"""
    lines = re.findall(r"^(\S+\.shape)  # .*?(\(\d[\d, ]*\))$", snippet, flags=re.M)
    return [(expression, eval(shape)) for expression, shape in lines]


@pytest.mark.parametrize("snippet", snippets("python"))
def test_python_snippets_run_and_give_the_shapes_they_say(snippet):
    scope = {}
    exec(snippet, scope)
    assert shapes(snippet)
    for expression, shape in shapes(snippet):
        assert eval(expression, scope) == shape


@pytest.mark.parametrize("snippet", snippets("ini"))
def test_config_snippets_make_a_pipeline(snippet):
    from spacy.util import load_model_from_config

    nlp = load_model_from_config(Config().from_str(snippet), auto_fill=True)
    nlp.initialize()
    assert nlp("Hello there")._.elmo is not None


def test_commands_name_files_and_subcommands_that_exist():
    import typer

    from spacy_elmo.cli import app

    commands = set(typer.main.get_command(app).commands)
    for command in re.findall(r"python -m spacy elmo (\w+)", README):
        assert command in commands
    for name in re.findall(r"(?:configs/)?(\w+\.cfg)", README):
        assert (ROOT / "configs" / name).is_file()
    for target in re.findall(r"^make (\w+)", README, flags=re.M):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()
