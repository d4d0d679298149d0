from .elmo import ELMo
from .factory import make_elmo

__all__ = ["ELMo", "make_elmo"]
