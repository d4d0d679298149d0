"""ELMo as a spaCy plugin. `spacy_elmo.bilm` is the biLM on its own."""

from . import registry
from .about import __version__

__all__ = ["registry", "__version__"]
