"""Configs of a biLM and of a pipeline with it, for a language and its text."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Dict, List

from thinc.api import Config

from ..pretraining.config import Sections, read_settings
from ..text.files import CORPUS, TEXT
from .raw_text import HELDOUT, Survey

PRETRAINING, PIPELINE = "pretrain_small.cfg", "ner_tagger.cfg"
# Longest words in characters: that of the config, or the smallest of these above it, so
# that fewer than one word in ten thousand is cut.
MAX_CHARACTERS = (50, 75, 100, 150)
MAX_CUT = 0.0001
# Of a pipeline. Its batches grow from a hundred words to six hundred in 1,800 steps:
# five minutes of a core for four components (Portuguese, on the machine of speed.md).
STEPS, STEPS_PER_HOUR = 1200, 600
# All of its evaluations, three or more, read at most this many tokens for each step,
# which trains on some 280: dev parts of treebanks may have 150,000.
EVALUATED_PER_STEP, MIN_EVALUATIONS = 140, 3


def shipped_config(name: str) -> Path:
    """A file in `configs`: a folder of the repository, or of the installed package."""
    package = Path(__file__).resolve().parents[1]
    folders = package / "configs", package.parent / "configs"
    return next(folder / name for folder in folders if (folder / name).is_file())


def pretrain_config(
    path: Path, nlp_config: Dict[str, Any], tokenized: bool, survey: Survey
) -> Config:
    """A pretraining config for a language and its text. `set_length` sets the length of
    the run.

    path (Path): The config that it is made from.
    nlp_config (Dict[str, Any]): [nlp] of the config.
    RAISES (CorpusError, WeightsError): If that is no pretraining config.
    """
    texts = {"paths.train": f"{CORPUS}/{TEXT}", "paths.dev": f"{CORPUS}/{HELDOUT}"}
    settings = read_settings(path, texts)
    config = Config(settings.model_dump(include=set(Sections.model_fields)))
    config["model"] = settings.options.to_dict()  # with what it leaves out
    config["nlp"] = nlp_config
    config["corpus"]["tokenized"] = tokenized
    if not config["paths"]["init_from"]:  # it has that of its weights
        char_cnn = config["model"]["char_cnn"]
        own = char_cnn["max_characters_per_token"]
        sizes = [own, *(n for n in MAX_CHARACTERS if n > own)]
        fitting = [n for n in sizes if survey.share_cut(n) < MAX_CUT]
        char_cnn["max_characters_per_token"] = (*fitting, sizes[-1])[0]
    # The project's steps run in its folder.
    for section, key in (("vocabulary", "path"), ("paths", "init_from")):
        value = config[section][key]
        if value and Path(value).exists():
            config[section][key] = str(Path(value).resolve())
    # Each row needs documents of its own.
    while config["training"]["rows"] > max(1, survey.pieces // 2):
        config["training"]["rows"] //= 2
    return config


def pipeline_config(
    nlp_config: Dict[str, Any], components: List[str], hours: float, n_dev: int
) -> Config:
    """A pipeline on a shared ELMo component, made from a shipped config.

    nlp_config (Dict[str, Any]): [nlp] of the config.
    components (List[str]): What `treebank.components_for` has found.
    hours (float): The time for the biLM. The pipeline's grows with it.
    n_dev (int): The number of tokens that an evaluation reads.
    """
    config = Config().from_disk(shipped_config(PIPELINE), interpolate=False)
    tagger, ner = (config["components"][name] for name in ("tagger", "ner"))
    parser = {**ner["model"], "state_type": "parser", "hidden_width": 128}
    blocks = {
        "elmo": config["components"]["elmo"],
        "tagger": tagger,
        "morphologizer": {**tagger, "factory": "morphologizer"},
        "parser": {"factory": "parser", "model": {**parser, "maxout_pieces": 3}},
        "ner": ner,
    }
    names = ["elmo", *components]
    config["components"] = {name: deepcopy(blocks[name]) for name in names}
    del config["nlp"]["tokenizer"]  # spaCy fills in that of the language
    config["nlp"].update(nlp_config, pipeline=names)
    config["paths"].update(train=f"{CORPUS}/train", dev=f"{CORPUS}/dev", elmo="bilm")
    training, steps = config["training"], STEPS + int(STEPS_PER_HOUR * hours)
    evaluations = max(MIN_EVALUATIONS, steps * EVALUATED_PER_STEP // n_dev)
    every = max(training["eval_frequency"], steps // evaluations)
    # The last one at the end: what is learned after it counts for nothing.
    training.update(eval_frequency=every, max_steps=round(steps / every) * every)
    del training["score_weights"]  # spaCy knows those of its components
    return config


def without_elmo(config: Config) -> Config:
    """The same pipeline on spaCy's own embedding."""
    config = config.copy()
    config["nlp"]["pipeline"].remove("elmo")
    del config["components"]["elmo"]
    for component in config["components"].values():
        tok2vec = component["model"]["tok2vec"]
        both = tok2vec["embed"]
        tok2vec["embed"] = {**both["embed"], "width": both["width"]}
    return config
