"""ELMo as a spaCy plugin. `spacy_elmo.bilm` is the biLM on its own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import registry
from .about import __version__

if TYPE_CHECKING:
    from .pipeline.vector_hooks import set_vector_hooks
    from .pretraining.language_model import LanguageModel

__all__ = ["LanguageModel", "registry", "set_vector_hooks", "__version__"]


# Imported on first use: the biLM on its own needs no spaCy.
_LATER = {
    "LanguageModel": ".pretraining.language_model",
    "set_vector_hooks": ".pipeline.vector_hooks",
}


def __getattr__(name: str) -> Any:
    if name in ("bilm", "weights"):
        return import_module(f".{name}", __name__)
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)
