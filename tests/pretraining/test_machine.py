import platform
import subprocess
import sys

import pytest

from spacy_elmo.bilm import precision
from spacy_elmo.pretraining import machine
from spacy_elmo.pretraining.training import pretrain


def test_precision_and_compiling_are_chosen(
    make_settings, tmp_path, monkeypatch, capsys
):
    """By the processor, and by the length of the run where there is a compiler."""
    compiled = []
    monkeypatch.setattr(machine, "use_fusion", compiled.append)
    monkeypatch.setenv("CXX", "true")  # there, and never run
    settings = make_settings(dev=False, precision="auto", compile="auto")
    for fast, least, wanted in (
        (True, 9, "Products in bfloat16, not compiled"),
        (False, 8, "Products in float32, compiled"),
    ):
        monkeypatch.setattr(precision, "has_fast_bfloat16", lambda _, fast=fast: fast)
        monkeypatch.setattr(machine, "MIN_STEPS_TO_COMPILE", least)
        pretrain(settings, tmp_path / wanted)
        assert wanted in " ".join(capsys.readouterr().out.split())
        assert compiled.pop() is not fast
    with pytest.warns(UserWarning, match="ELMOW002.*using float32"):
        pretrain(make_settings(dev=False, precision="bfloat16"), tmp_path / "asked")
    assert "Products in float32" in " ".join(capsys.readouterr().out.split())


FAULTS = """
import resource
import torch
from spacy_elmo.pretraining.machine import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

pages = 5 * 40_000_000 / resource.getpagesize()
print(faults() > 0.9 * pages)
keep_freed_memory()
faults()
print(faults() < 0.1 * pages)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_freed_memory_is_kept_for_the_next_step():
    command = [sys.executable, "-c", FAULTS]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]
