"""ELMo as a spaCy plugin. `spacy_elmo.bilm` is the biLM on its own."""

from typing import TYPE_CHECKING, Any

from . import registry
from .about import __version__

if TYPE_CHECKING:
    from .pipeline.vector_hooks import set_vector_hooks
    from .pretraining.language_model import LanguageModel

__all__ = ["LanguageModel", "registry", "set_vector_hooks", "__version__"]


def __getattr__(name: str) -> Any:
    # On first use: the biLM on its own needs no spaCy.
    if name == "LanguageModel":
        from .pretraining.language_model import LanguageModel

        return LanguageModel
    if name == "set_vector_hooks":
        from .pipeline.vector_hooks import set_vector_hooks

        return set_vector_hooks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
