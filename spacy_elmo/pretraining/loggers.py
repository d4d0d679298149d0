"""[training.logger]: spaCy's loggers (Weights & Biases, MLflow ...) for pretraining."""

import math
import sys
from typing import Any, Callable, Dict, Tuple

from ..errors import CorpusError, Errors
from .config import Settings

LogStep = Callable[[Dict[str, Any]], None]


def open_logger(
    settings: Settings, is_first: bool = True
) -> Tuple[LogStep, Callable[[], None]]:
    """Set up the logger of the config, which is any that `spacy train` takes:

        [training.logger]
        @loggers = "spacy.WandbLogger.v5"
        project_name = "my_bilm"

    It sees the loss as that of a component "bilm", and the perplexity of held-out
    text as the score.

    settings (Settings): The config.
    is_first (bool): Whether this is the process that logs.
    RETURNS (Tuple[Callable, Callable]): What takes a record of log.jsonl, and what
        closes the logger.
    RAISES (CorpusError): If there is no such logger, or if it cannot be set up.
    """
    if settings.training.logger is None or not is_first:
        return lambda record: None, lambda: None
    from spacy.util import get_lang_class, registry
    from thinc.api import Config

    try:
        config = {"logger": settings.training.logger}
        setup: Any = registry.resolve(config)["logger"]
        nlp = get_lang_class(settings.nlp.get("lang", "en"))()
        # What they ask the config of a pipeline for
        scores = {"score_weights": {"perplexity": 1.0}}
        frequency = {"eval_frequency": settings.training.log_steps}
        extra = {"training": {**scores, **frequency}}
        nlp.config = Config(settings.config).merge(extra)
        log_step, finalize = setup(nlp, sys.stdout, sys.stderr)
    except Exception as e:  # whatever a logger raises
        error = Errors.E051.format(path="[training.logger]", problem=e)
        raise CorpusError(error) from None
    last = {"average": math.nan}

    def log(record: Dict[str, Any]) -> None:
        last.update(average=record.get("average", last["average"]))
        log_step(to_info(record, last["average"]))

    return log, finalize


def to_info(record: Dict[str, Any], score: float) -> Dict[str, Any]:
    """A record of log.jsonl as `spacy train` gives it to a logger.

    score (float): The last perplexity of held-out text.
    """
    names = ("forward", "backward", "average", "bits_per_character")
    scores = {name: record[name] for name in names if name in record}
    if "average" in scores:
        scores["perplexity"] = scores.pop("average")
    scores.setdefault("perplexity", score)
    losses = {"bilm": record.get("loss", math.nan)}
    return {
        "epoch": int(record["epoch"]), "step": record["step"],
        "score": score, "other_scores": scores, "losses": losses,
        "checkpoints": [], "seconds": int(record["seconds"]),
        "words": record["tokens"],
    }  # fmt: skip
