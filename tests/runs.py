"""What a finished run has left in its folder."""

import json

import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.pretraining.language_model import read_softmax


def read_log(output):
    return [json.loads(line) for line in (output / "log.jsonl").open()]


def losses(output):
    return {line["step"]: line["loss"] for line in read_log(output) if "loss" in line}


def weights(output):
    bilm = BiLM.from_path(output)
    softmax = read_softmax(output, bilm.options.lstm.projection_dim)
    return [*bilm.parameters(), *softmax.parameters()]


def assert_same_run(output, wanted):
    """Losses, held-out perplexities and weights are equal to the last bit."""
    lines = [[{**r, "seconds": 0} for r in read_log(o)] for o in (output, wanted)]
    assert lines[0] == lines[1]
    for mine, theirs in zip(weights(output), weights(wanted)):
        assert torch.equal(mine, theirs)
