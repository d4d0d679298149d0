"""A spaCy project for a language: its configs fit a text, a machine and a time."""

import time
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Dict, List, NamedTuple

import srsly
from thinc.api import Config

from ..pretraining.config import Sections, read_settings
from ..pretraining.corpus import load_corpora
from ..pretraining.distributed import joined_processes
from ..pretraining.machine import prepare_run
from ..pretraining.run import train_step
from ..storage import replacing
from ..text.files import CORPUS, PROJECT, TEXT
from .raw_text import HELDOUT, Survey

META = "meta.json"
PRETRAINING, PIPELINE = "pretrain_small.cfg", "ner_tagger.cfg"
# Longest words in characters: that of the config, or the smallest of these above it, so
# that fewer than one word in ten thousand is cut.
MAX_CHARACTERS = (50, 75, 100, 150)
MAX_CUT = 0.0001
# Steps that are run and, after those of the warm-up, timed.
N_STEPS, WARM_UP = 12, 4
SAMPLE_CHARACTERS = 1_000_000
# The rest of the time goes to evaluations and checkpoints.
TRAINING_SHARE = 0.93
# One word in the vocabulary for this number of tokens that the run reads.
TOKENS_PER_ENTRY, MIN_ENTRIES, MAX_ENTRIES = 1000, 5000, 50_000
# A run of fewer steps has fewer rows: see benchmarks/trials.md.
MIN_STEPS, MIN_ROWS = 4000, 32
# With more epochs than this, the biLM overfits without dropout.
MANY_EPOCHS, DROPOUT = 2.0, 0.1
EVALUATIONS = 10
# All of them together read a twentieth of what the run reads, or less.
EVALUATED = 20 * EVALUATIONS
CHECKPOINT_SECONDS = 120
# The learning rate rises over at most a tenth of the run.
MAX_WARM_UP = 0.1
# Of a pipeline. Its batches grow from a hundred words to six hundred in 1,800 steps:
# five minutes of a core for four components (Portuguese, on the machine of speed.md).
STEPS, STEPS_PER_HOUR = 1200, 600
# Its evaluations, three or more, read this many tokens for each step, half as many as
# an hour's pipeline is trained on: dev parts of treebanks may have 150,000.
EVALUATED_PER_STEP, MIN_EVALUATIONS = 140, 3


class Pace(NamedTuple):
    """What the first steps on a text tell.

    tokens_per_second (float): Of this machine.
    tokens_per_word (float): Of the text: punctuation and the ends of sentences are
        tokens, too, and a language without spaces has many.
    """

    tokens_per_second: float
    tokens_per_word: float


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


def measure_pace(config: Config, survey: Survey, corpus: Path, hours: float) -> Pace:
    """How fast this machine trains in a run of some hours. Whether that is compiled
    depends on its length, and so on its pace without that: it is measured twice.

    corpus (Path): The folder of the text. Receives a temporary folder.
    """
    planned, plain = config.copy(), config.copy()
    plain["training"]["compile"] = False
    set_length(planned, survey, _time_steps(plain, corpus), hours)
    return _time_steps(planned, corpus)


def _time_steps(config: Config, corpus: Path) -> Pace:
    """The pace of the first steps on the beginning of a text."""
    config = config.copy()
    # As long as the run will be, though the sample is short; the others need held-out
    # text.
    config["training"].update(max_epochs=1e9, keep_best=False, patience=None)
    with TemporaryDirectory(dir=corpus) as name:
        folder = Path(name)
        sample, path = folder / TEXT, folder / "config.cfg"
        text = _read_pieces(corpus / TEXT, config["training"]["rows"])
        sample.write_text(text, encoding="utf8")
        config["paths"].update(train=str(sample), dev=None)
        config.to_disk(path)
        settings = read_settings(path)
        with joined_processes(settings.training.device) as processes:
            train, _ = load_corpora(settings, folder)
            run = prepare_run(settings, train, processes)
            ends = []
            for _ in range(N_STEPS):
                train_step(run, run.rows.read())
                ends.append(time.perf_counter())
            tokens_per_word = len(train.tokens) / len(text.split())
        del train, run  # Windows removes no file that is mapped
    # The first ones compile, and the median leaves out one that compiles later.
    seconds = [end - start for start, end in pairwise(ends[WARM_UP:])]
    return Pace(settings.training.tokens_per_step / median(seconds), tokens_per_word)


def _read_pieces(path: Path, n: int) -> str:
    """The beginning of a text: SAMPLE_CHARACTERS of it, or as many times that as it
    takes to have n pieces, each of which an empty line ends.
    """
    read = ""
    with path.open(encoding="utf8") as file:
        while more := file.read(SAMPLE_CHARACTERS):
            read += more
            if read.count("\n\n") >= n:
                break
    return read


def set_length(config: Config, survey: Survey, pace: Pace, hours: float) -> float:
    """Set the length of a run, and what depends on it.

    hours (float): How long it may train.
    RETURNS (float): How often it will read the text.
    """
    training = config["training"]
    text_tokens = pace.tokens_per_word * survey.words
    affordable = TRAINING_SHARE * pace.tokens_per_second * hours * 3600
    tokens = int(min(affordable, training["max_epochs"] * text_tokens))
    epochs = tokens / text_tokens
    enough = tokens / training["unroll_steps"] / MIN_STEPS
    while training["rows"] >= 2 * MIN_ROWS and training["rows"] > enough:
        training["rows"] //= 2
    tokens_per_step = training["rows"] * training["unroll_steps"]
    per_second = pace.tokens_per_second / tokens_per_step
    n_steps = max(1, tokens // tokens_per_step)
    entries = min(MAX_ENTRIES, max(MIN_ENTRIES, tokens // TOKENS_PER_ENTRY))
    config["vocabulary"]["max_size"] = entries
    evaluated = max(1, tokens // EVALUATED)
    training.update(
        max_tokens=tokens,
        dropout=DROPOUT if epochs > MANY_EPOCHS else 0.0,
        # A run writes the mean of its last checkpoints or the best one, not both.
        keep_best=epochs > MANY_EPOCHS and not training["average_share"],
        eval_steps=max(1, n_steps // EVALUATIONS),
        # 0 would be all of the text.
        eval_tokens=min(training["eval_tokens"] or evaluated, evaluated),
        checkpoint_steps=max(1, int(CHECKPOINT_SECONDS * per_second)),
        checkpoint_minutes=CHECKPOINT_SECONDS / 60,
    )
    optimizer = training["optimizer"]
    optimizer["warmup_steps"] = min(
        optimizer["warmup_steps"], int(MAX_WARM_UP * n_steps)
    )
    return epochs


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
    config["nlp"].update(nlp_config, pipeline=names)
    config["paths"].update(train=f"{CORPUS}/train", dev=f"{CORPUS}/dev", elmo="bilm")
    training, steps = config["training"], STEPS + int(STEPS_PER_HOUR * hours)
    evaluations = max(MIN_EVALUATIONS, steps * EVALUATED_PER_STEP // n_dev)
    training.update(
        max_steps=steps,
        eval_frequency=max(training["eval_frequency"], steps // evaluations),
    )
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


def write_project(
    folder: Path,
    config: Config,
    components: List[str],
    variables: Dict[str, Any],
    n_dev: int,
) -> None:
    """Write all of a project but its corpus.

    config (Config): Of pretraining.
    components (List[str]): Of the pipeline; none without a treebank.
    variables (Dict[str, Any]): "vars" of project.yml.
    n_dev (int): The number of tokens that an evaluation of the pipeline reads.
    """
    configs = folder / "configs"
    configs.mkdir()
    write_meta(folder, variables)
    config.to_disk(configs / "pretrain.cfg")
    steps = ["pretrain", "package-bilm"]
    if components:
        steps += ["baseline", "elmo", "compare", "package"]
        pipeline = pipeline_config(config["nlp"], components, variables["hours"], n_dev)
        pipeline.to_disk(configs / "elmo.cfg")
        without_elmo(pipeline).to_disk(configs / "baseline.cfg")
    project: Any = srsly.read_yaml(Path(__file__).parent / PROJECT)
    commands = [c for c in project["commands"] if c["name"] in steps]
    project.update(vars=variables, workflows={"all": steps}, commands=commands)
    srsly.write_yaml(folder / PROJECT, project)


def write_meta(folder: Path, variables: Dict[str, Any]) -> None:
    """Write what the packages say of themselves. If it changes, they are made anew."""
    meta = {key: variables[key] for key in ("lang", "name", "version", "license")}
    meta["sources"] = [variables["sources"]] if variables["sources"] else []
    srsly.write_json(folder / "configs" / META, meta)


def change_meta(folder: Path, changed: Dict[str, str]) -> None:
    """Change variables of a project that only its packages depend on."""
    project: Any = srsly.read_yaml(folder / PROJECT)
    project["vars"].update(changed)
    write_meta(folder, project["vars"])
    with replacing(folder / PROJECT) as path:
        srsly.write_yaml(path, project)
