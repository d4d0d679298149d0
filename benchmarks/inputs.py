"""What the benchmarks of speed run: sentences, random biLMs and pipelines with them."""

import argparse
import math
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, List, Optional

import spacy
import torch
from experiments.data import Rows
from experiments.data import sentences as sentences_of
from harness import ROOT, machine
from spacy.language import Language

from spacy_elmo.bilm import BiLM, Options

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
# Cells, projection and highway layers of two official models (allennlp.org/elmo), and
# of one that shows whether a script runs
GEOMETRIES = {"original": (4096, 512, 2), "small": (1024, 128, 1), "toy": (32, 8, 1)}
OFFICIAL = ["original", "small"]
SAMPLE = ROOT / "assets" / "sample_train.iob"

Sentences = List[List[str]]


def random_bilm(name: str) -> BiLM:
    """A biLM of an official geometry. Speed does not depend on the weights' values."""
    dim, projection, n_highway = GEOMETRIES[name]
    filters = FILTERS[:3] if name == "toy" else FILTERS
    options = {
        "lstm": {"dim": dim, "projection_dim": projection, "n_layers": 2,
                 "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True},
        "char_cnn": {"activation": "relu", "filters": filters, "n_highway": n_highway,
                     "embedding": {"dim": 16}, "n_characters": 262,
                     "max_characters_per_token": 50},
    }  # fmt: skip
    return randomize(BiLM(Options.from_dict(options)))


def randomize(bilm: BiLM) -> BiLM:
    """Give a biLM, whose memory is uninitialized, weights for predictions."""
    bilm.requires_grad_(False)
    torch.manual_seed(0)
    for param in bilm.parameters():
        fan_in = param.shape[0] if param.dim() == 2 else param[0].numel()
        torch.nn.init.normal_(param, 0.0, 1 / max(1, fan_in) ** 0.5)
        if param.dim() == 1:
            param.mul_(0.1)
    return bilm


def measure_geometries(
    measure: Callable[[str, Path, argparse.Namespace], Any], args: argparse.Namespace
) -> Dict[str, Any]:
    """Results of measure(name, weights, args) for each of args.geometries."""
    torch.set_num_threads(args.threads)
    found = {}
    for name in args.geometries:
        with TemporaryDirectory() as folder:
            random_bilm(name).save(folder)
            found[name] = measure(name, Path(folder), args)
    about = {"machine": machine(args.threads), "turns": args.turns}
    return {**about, "geometries": found}


def read_sentences(path: Optional[Path], n_words: int) -> Sentences:
    """Sentences of about n_words words; a text that is too short is repeated.

    path (Path): A treebank's .tsv; None for the sample corpus.
    """
    if path is None:
        lines = SAMPLE.read_text(encoding="utf8").splitlines()
        found = [[token.split("|")[0] for token in line.split()] for line in lines]
    else:
        found = [[row[1] for row in rows] for rows in read_rows(path)]
    sentences: Sentences = []
    n = 0
    for sentence in cycle(found):
        if n >= n_words:
            break
        sentences.append(sentence)
        n += len(sentence)
    return sentences


def read_rows(path: Path, n_words: float = math.inf) -> List[Rows]:
    """Rows of the tokens of each sentence of a treebank: of the first ones, until they
    have n_words.
    """
    found: List[Rows] = []
    n = 0
    for rows in sentences_of(path.read_text(encoding="utf8")):
        if n >= n_words:
            break
        found.append(rows)
        n += len(rows)
    return found


def make_pipeline(weights: object, **arguments: Any) -> Language:
    """A blank pipeline with an `elmo`; the arguments are those of BiLM.v1."""
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy_elmo.BiLM.v1", "weights": str(weights)}
    nlp.add_pipe("elmo", config={"model": {**model, **arguments}})
    return nlp
