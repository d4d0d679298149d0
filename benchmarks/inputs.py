"""What the benchmarks of speed run: sentences, and random biLMs of known geometries."""

from pathlib import Path
from typing import List, Optional

import torch
from harness import ROOT

from spacy_elmo.bilm import BiLM, Options

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
# Cells, projection and highway layers of two official models (allennlp.org/elmo)
GEOMETRIES = {"original": (4096, 512, 2), "small": (1024, 128, 1)}

Sentences = List[List[str]]


def random_bilm(name: str) -> BiLM:
    """A biLM of an official geometry. Speed does not depend on the weights' values."""
    dim, projection, n_highway = GEOMETRIES[name]
    options = {
        "lstm": {"dim": dim, "projection_dim": projection, "n_layers": 2,
                 "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True},
        "char_cnn": {"activation": "relu", "filters": FILTERS, "n_highway": n_highway,
                     "embedding": {"dim": 16}, "n_characters": 262,
                     "max_characters_per_token": 50},
    }  # fmt: skip
    bilm = BiLM(Options.from_dict(options)).requires_grad_(False)
    torch.manual_seed(0)
    for param in bilm.parameters():
        fan_in = param.shape[0] if param.dim() == 2 else param[0].numel()
        torch.nn.init.normal_(param, 0.0, 1 / max(1, fan_in) ** 0.5)
        if param.dim() == 1:
            param.mul_(0.1)
    return bilm


def read_sentences(path: Optional[Path], n_words: int) -> Sentences:
    """Sentences of about n_words words; a text that is too short is repeated.

    path (Path): A treebank's .tsv; None for the sample corpus.
    """
    if path is None:
        path = ROOT / "assets" / "sample_train.iob"
        lines = path.read_text(encoding="utf8").splitlines()
        found = [[w.split("|")[0] for w in line.split()] for line in lines]
    else:
        blocks = path.read_text(encoding="utf8").split("\n\n")
        rows = [[r for r in b.split("\n") if r and r[:2] != "# "] for b in blocks]
        found = [[r.split("\t")[1] for r in row] for row in rows if row]
    sentences: Sentences = []
    n = 0
    while n < n_words:
        for sentence in found:
            sentences.append(sentence)
            n += len(sentence)
            if n >= n_words:
                break
    return sentences
