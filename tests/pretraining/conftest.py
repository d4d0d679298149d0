from functools import partial
from multiprocessing import get_context

import made_up
import pytest
import torch
from thinc.api import Config

from spacy_elmo.pretraining import loop
from spacy_elmo.pretraining.config import (
    CorpusSettings,
    VocabularySettings,
    read_settings,
)
from spacy_elmo.pretraining.corpus import load_corpus
from spacy_elmo.pretraining.tokenizer import Tokenizer
from spacy_elmo.pretraining.training import pretrain


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_corpus(tmp_path):
    """make_corpus(text, **settings of [vocabulary]) -> Corpus; `settings` are those of
    [corpus]; several texts are files text-0.txt, text-1.txt ..."""

    def make(text, name="text.txt", settings=None, vocabulary=None, code=None, **how):
        texts = {name: text}
        if isinstance(text, list):
            texts = {f"text-{i}.txt": text for i, text in enumerate(text)}
        for file, content in texts.items():
            (tmp_path / file).write_text(content, encoding="utf8")
        settings = CorpusSettings(**{"tokenized": True, **(settings or {})})
        tokenizer = Tokenizer({"lang": "en"}, settings, code)
        vocabulary = vocabulary or VocabularySettings(**{"min_count": 1, **how})
        files, cache = [tmp_path / file for file in texts], tmp_path / f"{name}.cache"
        return load_corpus(files, cache, tokenizer, vocabulary, 16)

    return make


# A fork of a process that has seen a GPU cannot use torch, not even on the CPU.
CONTEXT = get_context("spawn" if torch.cuda.is_available() else "forkserver")
CONTEXT.set_forkserver_preload(["spacy_elmo.pretraining.training"])


def settings_in(folder, n_documents=60, dev=True, overrides=None, **training):
    """Texts and a config in a folder; `training` are settings of [training]."""
    paths = folder / "train.txt", folder / "dev.txt"
    for seed, path in enumerate(paths):
        path.write_text(made_up.text(n_documents, seed))
    held_out = paths[1] if dev else None
    config = made_up.pretrain_config(paths[0], held_out, **training)
    Config(config).to_disk(folder / "config.cfg")
    return read_settings(folder / "config.cfg", overrides)


@pytest.fixture
def make_settings(tmp_path):
    """make_settings(n_documents=..., **settings of [training]) -> Settings"""
    return partial(settings_in, tmp_path)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """The folder of a finished run, in `out`, with its texts and its config."""
    folder = tmp_path_factory.mktemp("finished")
    pretrain(settings_in(folder), folder / "out")
    return folder


@pytest.fixture(scope="session")
def start_process():
    """start_process(function, *args) -> Process. Without a GPU they all come from one
    server, which has imported what they need."""

    def start(function, *args):
        process = CONTEXT.Process(target=function, args=args)
        process.start()
        return process

    return start


@pytest.fixture
def stop_at(monkeypatch):
    """stop_at(n) kills the run at the n-th update from now; stop_at(None) not."""
    update = loop.train_step

    def stop(n):
        left = iter(range(n)) if n is not None else None

        def train_step(*args):
            if left is not None and next(left, None) is None:
                raise KeyboardInterrupt
            return update(*args)

        monkeypatch.setattr(loop, "train_step", train_step)

    return stop
