"""`python -m spacy elmo ...`. Every `spacy` command imports this: what the commands
need is imported when they run.
"""

from ._app import app
from .download import download_cli
from .embed import embed_cli
from .evaluate import evaluate_cli
from .info import info_cli
from .init import init_cli
from .mixes import mix_cli
from .neighbors import neighbors_cli
from .package import package_cli
from .plot import plot_cli
from .pretrain import pretrain_cli
from .score import score_cli
from .vectors import vectors_cli

__all__ = [
    "app",
    "download_cli",
    "embed_cli",
    "evaluate_cli",
    "info_cli",
    "init_cli",
    "mix_cli",
    "neighbors_cli",
    "package_cli",
    "plot_cli",
    "pretrain_cli",
    "score_cli",
    "vectors_cli",
]
