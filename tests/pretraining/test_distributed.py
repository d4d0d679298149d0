import os
import socket
import subprocess
import sys

import pytest
import torch
from runs import losses, wait_for_the_first

from spacy_elmo.bilm import BiLM
from spacy_elmo.pretraining.corpus import load_corpora
from spacy_elmo.pretraining.distributed import Processes, joined_processes
from spacy_elmo.pretraining.run import start_run
from spacy_elmo.pretraining.training import pretrain

ADAGRAD = {"name": "adagrad", "learn_rate": 0.3, "decay": "none", "warmup_steps": 0}
SAMPLED = {"kind": "sampled", "n_samples": 20}


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def torchrun(n, config, output, *overrides):
    """The command of README on n processes of this machine."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n),
        "--master-port", str(free_port()), "-m", "spacy", "elmo", "pretrain",
        str(config), str(output), *overrides,
    ]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, env=env)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_two_processes_have_the_curve_of_one_and_either_goes_on(
    make_settings, tmp_path
):
    recipe = {
        "rows": 5, "state": "carried", "dropout": 0.0, "optimizer": ADAGRAD,
        "softmax": SAMPLED, "loss_scale": 10.0, "grad_clip": 10.0,
        "max_tokens": 5 * 10 * 8, "checkpoint_steps": 4,
    }  # fmt: skip
    settings = make_settings(**recipe)
    pretrain(settings, tmp_path / "one")
    wanted = losses(tmp_path / "one")
    # Two processes for the first half of the run, and then one.
    half = ("--training.max_tokens", str(5 * 10 * 4))
    printed = torchrun(2, tmp_path / "config.cfg", tmp_path / "two", *half)
    assert printed.count("held-out text") == 1
    assert losses(tmp_path / "two").keys() == set(range(1, 5))
    pretrain(settings, tmp_path / "two")
    found = losses(tmp_path / "two")
    assert found == pytest.approx(wanted, rel=1e-5)
    for mine, theirs in zip(
        BiLM.from_path(tmp_path / "two").parameters(),
        BiLM.from_path(tmp_path / "one").parameters(),
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-4)


def test_processes_wait_for_a_long_tokenization(start_process):
    """It may take the first one longer than torch lets the others wait."""
    port = free_port()
    processes = [start_process(wait_for_the_first, rank, port) for rank in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]


def test_more_processes_than_rows_are_refused(make_settings, tmp_path):
    settings = make_settings()
    corpus, _ = load_corpora(settings, tmp_path / "out")
    with pytest.raises(ValueError, match="training.rows.*processes, 5"):
        start_run(settings, corpus, Processes(0, 5))


@pytest.mark.parametrize("n_rows, n", [(5, 2), (4, 4), (128, 3)])
def test_every_row_has_one_process(n_rows, n):
    rows = [row for rank in range(n) for row in Processes(rank, n).share(n_rows)]
    assert rows == list(range(n_rows))


def test_a_gpu_is_taken_unless_the_config_says_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for wanted, device in (("auto", "cuda:0"), ("cpu", "cpu")):
        with joined_processes(wanted) as processes:
            assert processes.device == torch.device(device)
