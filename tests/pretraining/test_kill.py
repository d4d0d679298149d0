"""`kill -9` at random moments, and the same command again: nothing is lost."""

import os
import random
import subprocess
import sys
import time

import h5py
import made_up
import numpy as np
import srsly
from thinc.api import Config

# KILLS=10 pytest tests/pretraining/test_kill.py for a longer run
KILLS = int(os.environ.get("KILLS", "2"))


def start(config, output):
    command = ["-m", "spacy", "elmo", "pretrain", str(config), str(output)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *command],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def n_checkpoints(output):
    """Changes whenever a checkpoint is written."""
    path = output / "checkpoint.pt"
    return path.stat().st_mtime_ns if path.is_file() else 0


def arrays(output):
    found = {}

    def visit(name, node):
        if isinstance(node, h5py.Dataset):
            found[name] = node[()]

    with h5py.File(output / "weights.hdf5") as h5:
        h5.visititems(visit)
    return found


def test_a_run_that_is_killed_again_and_again_ends_as_an_unbroken_one(tmp_path):
    for name, seed in (("train", 0), ("dev", 1)):
        (tmp_path / f"{name}.txt").write_text(made_up.text(300, seed))
    settings = made_up.pretrain_config(
        tmp_path / "train.txt", tmp_path / "dev.txt",
        max_tokens=6_000, checkpoint_steps=3, log_steps=1, eval_steps=1000,
    )  # fmt: skip
    config = tmp_path / "config.cfg"
    Config(settings).to_disk(config)
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    whole = start(config, unbroken)
    rng, n_kills = random.Random(0), 0
    while n_kills < KILLS:
        process, before = start(config, broken), n_checkpoints(broken)
        while process.poll() is None and n_checkpoints(broken) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.15))
        if process.poll() is not None:
            break  # it was faster
        process.kill()
        process.wait()
        n_kills += 1
    assert start(config, broken).wait() == whole.wait() == 0
    assert n_kills > 0
    for name, array in arrays(unbroken).items():
        np.testing.assert_array_equal(arrays(broken)[name], array)
    curves = [
        [
            (r["step"], r["loss"])
            for r in srsly.read_jsonl(p / "log.jsonl")
            if "loss" in r
        ]
        for p in (unbroken, broken)
    ]
    assert curves[0] == curves[1]
    assert not list(broken.glob(".*"))
