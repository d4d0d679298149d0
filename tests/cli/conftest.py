from types import SimpleNamespace

import made_up
import pytest
import torch
from spacy.cli._util import app
from thinc.api import Config
from typer.testing import CliRunner

from spacy_elmo import cli  # noqa: F401 (joins the commands to spaCy's)


@pytest.fixture(scope="session")
def elmo():
    """elmo("info", path) -> what `python -m spacy elmo info path` does, in here: its
    exit code, its output, and the text of that without its line breaks."""

    def run(*args):
        result = CliRunner().invoke(app, ["elmo", *map(str, args)])
        text = " ".join(result.output.split())
        return SimpleNamespace(
            exit_code=result.exit_code, output=result.output, text=text
        )

    return run


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """A config file of a tiny model that lacks its text."""
    path = tmp_path_factory.mktemp("config") / "config.cfg"
    config = made_up.pretrain_config("corpus.txt")
    config["paths"]["train"] = None
    config["training"].update(eval_steps=50, checkpoint_steps=50)
    Config(config).to_disk(path)
    return path


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    directory = tmp_path_factory.mktemp("texts")
    paths = directory / "train.txt", directory / "dev.txt"
    for seed, path in enumerate(paths):
        path.write_text(made_up.text(60, seed))
    return paths


@pytest.fixture(scope="session")
def trained(tmp_path_factory, elmo, config, texts):
    """A tiny model that `pretrain` has written, and what the command printed."""
    output = tmp_path_factory.mktemp("trained") / "model"
    paths = ["--paths.train", texts[0], "--paths.dev", texts[1]]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    result = elmo("pretrain", config, output, *paths, "--training.max_tokens", 2000)
    torch.set_num_threads(threads)
    assert result.exit_code == 0, result.output
    return output, result.output
