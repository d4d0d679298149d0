"""The sections of a pretraining config, checked by pydantic as spaCy checks its own."""

from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Optional, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from spacy.language import DEFAULT_CONFIG
from thinc.api import Config

from ..bilm import Options
from ..errors import CorpusError, Errors, did_you_mean, unusable

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


def _as_list(paths: Any) -> Any:
    """One path, several, or null. A folder named 2021 was read as a number."""
    return [str(paths)] if isinstance(paths, (str, int)) else paths or []


Paths = Annotated[List[str], BeforeValidator(_as_list)]


class StrictModel(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class PathSettings(StrictModel):
    """[paths]. Text is a file, a directory or a glob, or a list of them."""

    train: Paths = []
    dev: Paths = []  # perplexity is reported for each of its files
    init_from: Optional[str] = None  # name or path of a trained model to start from


class CorpusSettings(StrictModel):
    """[corpus]. Shares are of the documents."""

    tokenized: bool = False  # lines are sentences whose words stand between spaces
    max_length: Count = 256  # sentences are cut after this many words
    ascii_quotes: Share = 0.0  # read with ASCII quotes, so that both are learned
    lower_case: Share = 0.0
    no_punctuation: Share = 0.0
    # How often a file is read in an epoch, by a pattern of its name; 1 for the others.
    # 0.3 reads another 30 % of its documents in each epoch, 2 reads all of them twice.
    weights: Dict[str, NotNegative] = {}
    n_process: Count = 1

    def as_it_stands(self) -> "CorpusSettings":
        """Settings for held-out text, which is read once and unchanged."""
        kept = self.model_dump(include={"tokenized", "max_length", "n_process"})
        return CorpusSettings(**kept)


class VocabularySettings(StrictModel):
    """[vocabulary]: the words that the softmax predicts."""

    path: Optional[str] = None  # a vocabulary file; null makes one from the corpus
    max_size: Annotated[int, Field(ge=4)] = 100_000  # with the three special words
    min_count: Count = 2  # rarer words become <UNK> as targets


class OptimizerSettings(StrictModel):
    """[training.optimizer]."""

    name: Literal["adamw", "adagrad"] = "adamw"  # the paper has Adagrad
    learn_rate: Positive = 0.002
    warmup_steps: Annotated[int, Field(ge=0)] = 500  # linear, to learn_rate
    decay: Literal["cosine", "linear", "none"] = "cosine"  # to 0 at the last step
    # The last part of the run, over which the rate decays. Before that it is constant,
    # and the run can be prolonged.
    decay_share: Share = 1.0
    weight_decay: NotNegative = 0.01  # of AdamW, as the next two
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    initial_accumulator: NotNegative = 1.0  # of Adagrad


class SoftmaxSettings(StrictModel):
    """[training.softmax]."""

    kind: Literal["sampled", "full"] = "sampled"  # log-uniform, as in the paper
    n_samples: Count = 8192  # per step, shared by the batch and both directions


class TrainingSettings(StrictModel):
    """[training]. A batch is `rows` contiguous streams of text, over all processes,
    and a window of `unroll_steps` tokens of each, for each direction.
    """

    rows: Count = 128
    unroll_steps: Count = 32
    # "carried" along the rows as in the paper, or "zero": each sentence starts from
    # the zero state, as the plugin runs the model.
    state: Literal["carried", "zero"] = "carried"
    # Length of the run, in tokens of the corpus, each of which is read forward and
    # backward, and in passes over it: whichever ends first.
    max_tokens: Optional[Count] = None
    max_epochs: Positive = 10.0
    # The last part of the run: what is written is the mean of some twenty snapshots.
    average_share: Share = 0.0
    # Of the input of each LSTM layer and of the softmax
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    grad_clip: Positive = 1.0  # highest norm of all gradients together
    # Factor on the gradients: the reference scales them by unroll_steps, which the clip
    # and Adagrad notice.
    loss_scale: Positive = 1.0
    device: Literal["auto", "cpu"] = "auto"  # a GPU if there is one
    # Of matrix products. "auto" is bfloat16 if this machine is fast in it.
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    # Fuse pointwise operations by torch.compile. "auto" does if there is a C++ compiler
    # and the run is long enough.
    compile: Literal[True, False, "auto"] = False
    # Of the initial weights, the order of the documents, dropout and negatives.
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    eval_steps: Count = 1000
    # Of each held-out file, for the curve; 0 reads all of it, as the last one does.
    eval_tokens: Annotated[int, Field(ge=0)] = 50_000
    log_steps: Count = 50
    checkpoint_steps: Count = 500
    checkpoint_minutes: Positive = 10.0  # a checkpoint at least this often
    keep_best: bool = False  # write the weights of the best evaluation, not the last
    patience: Optional[Count] = None  # evaluations without gain before a stop
    optimizer: OptimizerSettings = OptimizerSettings()
    softmax: SoftmaxSettings = SoftmaxSettings()
    logger: Optional[Dict[str, Any]] = None  # one of spaCy's, beside log.jsonl

    @property
    def compares_evaluations(self) -> bool:
        """Whether it matters that they are of the same text."""
        return self.keep_best or self.patience is not None

    @property
    def tokens_per_step(self) -> int:
        return self.rows * self.unroll_steps


class Sections(StrictModel):
    """The sections of a config."""

    paths: PathSettings = PathSettings()
    nlp: Dict[str, Any] = {"lang": "en"}
    corpus: CorpusSettings = CorpusSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    model: Dict[str, Any] = {}
    training: TrainingSettings = TrainingSettings()


class Settings(Sections):
    """A whole pretraining config."""

    config: Dict[str, Any]  # as it was read, with its variables filled in
    options: Options  # [model]
    code: Optional[Path] = None  # the Python file that the config needs


def read_settings(
    path: Union[str, Path],
    overrides: Optional[Dict[str, Any]] = None,
    *,
    code: Optional[Path] = None,
) -> Settings:
    """Read a pretraining config.

    overrides (Dict[str, Any]): Dotted names and values, as from the command line.
    code (Path): Python file with registered functions that [nlp] names.
    RAISES (CorpusError): If a section or a setting is unknown or impossible.
    RAISES (WeightsError): If [model] is.
    """
    config = read_config(path, overrides)
    if "components" in config:
        problem = "is for 'spacy train'. Take one such as configs/pretrain_small.cfg"
        raise unusable(path, problem)
    found = check_sections(config)
    # spaCy leaves out what it does not know.
    check_names(found.nlp, dict.fromkeys(DEFAULT_CONFIG["nlp"], {}), "nlp")
    training = found.training
    if not found.paths.train:
        raise unusable("paths.train", "is null: give the text by --paths.train")
    for name, value in (
        ("paths.train", found.paths.train),
        ("paths.dev", found.paths.dev),
        ("paths.init_from", found.paths.init_from),
        ("vocabulary.path", found.vocabulary.path),
    ):
        if value in ("", [""]):  # a variable of the shell that is not set
            raise unusable(name, "is empty")
    for name in ("keep_best", "patience"):
        if getattr(training, name) and not found.paths.dev:
            problem = "needs held-out text: give it by --paths.dev"
            raise unusable(f"training.{name}", problem)
    if training.keep_best and training.average_share:
        problem = "must be 0 where keep_best is true"
        raise unusable("training.average_share", problem)
    options = Options.from_dict(config.get("model"), f"{path}: model")
    check_names(config["model"], options.to_dict(), "model")
    return Settings(**dict(found), config=config, options=options, code=code)


def read_config(
    path: Union[str, Path], overrides: Optional[Dict[str, Any]] = None
) -> Config:
    """Parse a config file and fill its variables in. Overrides may be of sections that
    it leaves out.
    """
    try:
        config = Config().from_disk(path, interpolate=False)
        for name, value in (overrides or {}).items():
            *parts, last = name.split(".")
            section: Any = config
            for part in parts:
                section = section.setdefault(part, {})
            section[last] = value
        # "$$" means "$", but without interpolation it is read as it is, and doubled.
        text = config.to_str(interpolate=False).replace("$$$$", "$$")
        return Config().from_str(text)
    except Exception as e:  # confection and configparser have many
        raise unusable(path, f"is not a config ({' '.join(str(e).split())})") from None


def check_names(section: Dict[str, Any], known: Dict[str, Any], name: str = "") -> None:
    """Refuse settings that are not known. (A released options.json may have more.)

    known (Dict[str, Any]): Sections by name; an empty one may have any settings.
    RAISES (CorpusError): If a setting is unknown.
    """
    for key, value in section.items():
        if key not in known:
            hint, names = did_you_mean(key, known), ", ".join(known)
            problem = f"no setting is named '{key}'.{hint} There are {names}"
            raise unusable(f"[{name}]" if name else "the config", problem)
        inner = known[key]
        if isinstance(value, dict) and isinstance(inner, dict) and inner:
            check_names(value, inner, f"{name}.{key}" if name else key)


def check_sections(config: Dict[str, Any]) -> Sections:
    """Check the sections of a config, some of which may be left out.

    RAISES (CorpusError): If a section or a setting is unknown or impossible.
    """
    # Those of [nlp] are spaCy's.
    check_names(config, {**Sections().model_dump(), "nlp": {}})
    try:
        return Sections.model_validate(config)
    except ValidationError as e:
        error = e.errors()[0]
    wanted = error["msg"].replace("Input should be ", "")
    # As configs and the command line write it.
    wanted = wanted.replace("a valid boolean", "true or false")
    wanted = wanted.replace("True", "true").replace("False", "false")
    name, found = ".".join(map(str, error["loc"])), error["input"]
    raise CorpusError(Errors.E038.format(name=name, wanted=wanted, found=found))
