"""The bidirectional language model in PyTorch; nothing here needs spaCy."""

from .model import BiLM, BiLMState
from .options import CharCNNOptions, LSTMOptions, Options

__all__ = ["BiLM", "BiLMState", "Options", "CharCNNOptions", "LSTMOptions"]
