"""What tests start in processes of their own (a process finds this module, and none of
the tests), and what a finished run has left in its folder."""

import json
import os
import time
from datetime import timedelta

import torch
from torch.distributed import distributed_c10d

from spacy_elmo.bilm import BiLM
from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.distributed import joined_processes
from spacy_elmo.pretraining.language_model import read_softmax
from spacy_elmo.pretraining.training import pretrain


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


def run(config, output):
    torch.set_num_threads(1)
    pretrain(read_settings(config), output)


def wait_for_the_first(rank, port):
    names = {"WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({k: str(v) for k, v in {**names, "RANK": rank}.items()})
    distributed_c10d.default_pg_timeout = timedelta(seconds=1)
    with joined_processes("cpu") as processes:
        if processes.is_first:
            time.sleep(2)
        processes.wait()
