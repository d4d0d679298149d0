"""The bidirectional language model in PyTorch; nothing here needs spaCy."""

from .lstm import LSTMState
from .model import BiLM
from .options import CharCNNOptions, LSTMOptions, Options

__all__ = ["BiLM", "LSTMState", "Options", "CharCNNOptions", "LSTMOptions"]
