"""The sections of a pretraining config, checked."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import (
    Any,
    Collection,
    Dict,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from thinc.api import Config

from ..bilm import Options
from ..errors import CorpusError, Errors

T = TypeVar("T")

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


@dataclass(frozen=True)
class CorpusSettings:
    """[corpus].

    tokenized: Lines are sentences whose words stand between blanks.
    max_length: Cut sentences after so many words.
    ascii_quotes: Share of the documents in which typographic quotes become ASCII
        ones, so that the model learns both.
    n_process: Processes that tokenize.
    """

    # The fingerprint of a cache is made of this class's repr: a change of the fields
    # makes all caches anew.
    tokenized: bool = False
    max_length: int = 256
    ascii_quotes: float = 0.0
    n_process: int = 1

    def __post_init__(self) -> None:
        _check_kinds(self, "corpus")
        _at_least(1, self, "corpus", "max_length", "n_process")
        _share(self, "corpus", "ascii_quotes")


@dataclass(frozen=True)
class VocabularySettings:
    """[vocabulary]: the words that the softmax predicts.

    path: A vocabulary file to use; null makes one from the corpus.
    max_size: The most frequent words, the three special ones included.
    min_count: Rarer words become <UNK> as targets.
    """

    path: Optional[str] = None
    max_size: int = 100_000
    min_count: int = 2

    def __post_init__(self) -> None:
        _check_kinds(self, "vocabulary")
        _at_least(4, self, "vocabulary", "max_size")
        _at_least(1, self, "vocabulary", "min_count")


@dataclass(frozen=True)
class OptimizerSettings:
    """[training.optimizer].

    name: "adamw", or "adagrad" as in the paper.
    warmup_steps: Linear warm-up to learn_rate.
    decay: "cosine", "linear" (both to 0 at the last step) or "none".
    decay_share: The last part of the run, over which the rate decays; before, it
        stands still, and the run can be prolonged.
    initial_accumulator: Adagrad's; the reference starts from 1.
    """

    name: str = "adamw"
    learn_rate: float = 0.002
    warmup_steps: int = 500
    decay: str = "cosine"
    decay_share: float = 1.0
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    initial_accumulator: float = 1.0

    def __post_init__(self) -> None:
        section = "training.optimizer"
        _check_kinds(self, section)
        _one_of(("adamw", "adagrad"), self, section, "name")
        _one_of(("cosine", "linear", "none"), self, section, "decay")
        _positive(self, section, "learn_rate")
        _at_least(0, self, section, "warmup_steps", "weight_decay",
                  "initial_accumulator")  # fmt: skip
        _share(self, section, "beta1", "beta2", "decay_share")


@dataclass(frozen=True)
class SoftmaxSettings:
    """[training.softmax].

    kind: "sampled" (log-uniform negatives), "full" or "adaptive". The first is the
        paper's; the second is exact and best up to about 100,000 words.
    cutoffs: Of the adaptive softmax: ranks at which clusters of rarer words begin.
    n_samples: Negatives a step, shared by the batch and by both directions.
    sparse: Update only the words that were drawn or wanted, for large vocabularies.
        Adagrad gives the same either way, and AdamW does not have it.
    """

    kind: str = "sampled"
    n_samples: int = 8192
    sparse: bool = False
    cutoffs: Sequence[int] = (2000, 10_000, 50_000)

    def __post_init__(self) -> None:
        _check_kinds(self, "training.softmax")
        kinds = ("sampled", "full", "adaptive")
        _one_of(kinds, self, "training.softmax", "kind")
        cutoffs = list(self.cutoffs)
        if cutoffs != sorted(set(cutoffs)) or not all(
            type(n) is int and n > 0 for n in cutoffs
        ):
            wanted = "rising whole numbers above 0"
            raise _impossible(self, "training.softmax", "cutoffs", wanted)
        _at_least(1, self, "training.softmax", "n_samples")


@dataclass(frozen=True)
class TrainingSettings:
    """[training].

    rows, unroll_steps: A batch is `rows` contiguous streams of text, over all
        processes, and a window of `unroll_steps` tokens of each, for each direction.
    accumulate_gradient: Parts in which a process reads its rows, to need less memory.
    state: "carried" along the rows as in the paper, or "zero": each sentence starts
        from the zero state, as the plugin runs the model.
    max_tokens: Length of the run in tokens of the corpus (each read forward and
        backward); max_epochs: the same in passes. The lesser of the two counts.
    average_share: The last part of the run: the weights that are written are the
        mean of those at its checkpoints. The checkpoints keep those of the run.
    dropout: Of the input of each LSTM layer and of the softmax.
    grad_clip: Highest norm of all gradients together.
    loss_scale: Factor on the gradients: the reference scales them by unroll_steps,
        which the clip and Adagrad notice.
    precision: "float32", or "bfloat16" for the products.
    compile: Fuse the pointwise parts by torch.compile.
    seed: Of the initial weights, the order of the documents, dropout and negatives.
    eval_steps, log_steps, checkpoint_steps: How often, in steps.
    eval_tokens: Part of the held-out text for the curve; the last evaluation always
        reads all of it.
    logger: One of spaCy's loggers, beside log.jsonl: see `loggers`.
    """

    rows: int = 128
    unroll_steps: int = 32
    accumulate_gradient: int = 1
    state: str = "carried"
    max_tokens: Optional[int] = None
    max_epochs: float = 10.0
    average_share: float = 0.0
    dropout: float = 0.1
    grad_clip: float = 1.0
    loss_scale: float = 1.0
    precision: str = "float32"
    compile: bool = False
    seed: int = 0
    eval_steps: int = 1000
    eval_tokens: int = 50_000
    log_steps: int = 50
    checkpoint_steps: int = 500
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    softmax: SoftmaxSettings = field(default_factory=SoftmaxSettings)
    logger: Optional[Dict[str, Any]] = None

    def __post_init__(self) -> None:
        _check_kinds(self, "training")
        _one_of(("carried", "zero"), self, "training", "state")
        _one_of(("float32", "bfloat16"), self, "training", "precision")
        _at_least(1, self, "training", "rows", "unroll_steps", "max_tokens",
                  "accumulate_gradient", "eval_steps", "log_steps",
                  "checkpoint_steps")  # fmt: skip
        _at_least(0, self, "training", "seed", "eval_tokens")
        _positive(self, "training", "max_epochs", "grad_clip", "loss_scale")
        _share(self, "training", "average_share", "dropout")
        if self.softmax.sparse and (self.softmax.kind, self.optimizer.name) != (
            "sampled",
            "adagrad",
        ):
            wanted = "false, but with kind = 'sampled' and optimizer.name = 'adagrad'"
            raise _impossible(self.softmax, "training.softmax", "sparse", wanted)

    @property
    def tokens_per_step(self) -> int:
        return self.rows * self.unroll_steps


@dataclass(frozen=True)
class Settings:
    """A whole pretraining config.

    init_from: A trained model to start from: a registered name or a path.
    code: The Python file that the config needs.
    """

    config: Config
    train: str
    dev: Optional[str]
    nlp: Dict[str, Any]
    corpus: CorpusSettings
    vocabulary: VocabularySettings
    options: Options
    training: TrainingSettings
    init_from: Optional[str] = None
    code: Optional[Path] = None


def read_settings(
    path: Union[str, Path],
    overrides: Optional[Dict[str, Any]] = None,
    *,
    code: Optional[Path] = None,
) -> Settings:
    """Read a pretraining config.

    path (str or Path): The config.
    overrides (Dict[str, Any]): Dotted names and values, as from the command line.
    code (Path): Python file with registered functions that [nlp] names.
    RETURNS (Settings): The settings.
    RAISES (CorpusError): If a section or a setting is unknown or impossible.
    RAISES (WeightsError): If [model] is.
    """
    config = read_config(path, overrides)
    _no_others(config, SECTIONS, "the config")
    paths = config.get("paths", {})
    if not paths.get("train"):
        problem = "is null: give the text by --paths.train"
        raise CorpusError(Errors.E051.format(path="paths.train", problem=problem))
    training = dict(config.get("training", {}))
    for name, section in SUBSECTIONS.items():
        training[name] = make_section(section, training.get(name), f"training.{name}")
    return Settings(
        config=config,
        train=str(paths["train"]),
        dev=str(paths["dev"]) if paths.get("dev") else None,
        nlp=dict(config.get("nlp", {"lang": "en"})),
        corpus=make_section(CorpusSettings, config.get("corpus"), "corpus"),
        vocabulary=make_section(
            VocabularySettings, config.get("vocabulary"), "vocabulary"
        ),
        options=Options.from_dict(config.get("model"), f"{path}: model"),
        training=make_section(TrainingSettings, training, "training"),
        init_from=paths.get("init_from") or None,
        code=code,
    )


SECTIONS = ("paths", "nlp", "corpus", "vocabulary", "model", "training")
SUBSECTIONS: Dict[str, Any] = {
    "optimizer": OptimizerSettings,
    "softmax": SoftmaxSettings,
}


def read_config(
    path: Union[str, Path], overrides: Optional[Dict[str, Any]] = None
) -> Config:
    """Parse a config file and fill its variables in."""
    try:
        return Config().from_disk(path, overrides=overrides or {}).interpolate()
    except Exception as e:  # confection and configparser have many
        raise CorpusError(Errors.E051.format(path=path, problem=e)) from None


def make_section(kind: Type[T], values: Any, section: str) -> T:
    """Check a section of a config and make its settings."""
    values = dict(values or {})
    _no_others(values, [f.name for f in fields(kind)], f"[{section}]")  # type: ignore[arg-type]
    return kind(**values)


def _no_others(values: Dict[str, Any], known: Collection[str], section: str) -> None:
    for name in values:
        if name not in known:
            problem = f"is no setting of {section}, which knows {', '.join(known)}"
            raise CorpusError(Errors.E051.format(path=name, problem=problem))


def _check_kinds(settings: Any, section: str) -> None:
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        optional = get_origin(hint) is Union
        kind = get_args(hint)[0] if optional else hint
        if kind not in _KINDS or (value is None and kind is not hint):
            continue
        allowed = (int, float) if kind is float else kind
        if not isinstance(value, allowed) or isinstance(value, bool) != (kind is bool):
            raise _impossible(settings, section, name, _KINDS[kind])


def _one_of(known: Collection[str], settings: Any, section: str, name: str) -> None:
    if getattr(settings, name) not in known:
        raise _impossible(settings, section, name, " or ".join(map(repr, known)))


def _at_least(least: int, settings: Any, section: str, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:  # NaN is not
            raise _impossible(settings, section, name, f">= {least}")


def _positive(settings: Any, section: str, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) > 0:
            raise _impossible(settings, section, name, "> 0")


def _share(settings: Any, section: str, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise _impossible(settings, section, name, "between 0 and 1")


def _impossible(settings: Any, section: str, name: str, wanted: str) -> CorpusError:
    found = repr(getattr(settings, name))
    return CorpusError(
        Errors.E038.format(name=f"{section}.{name}", wanted=wanted, found=found)
    )
