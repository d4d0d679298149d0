import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch._C._acc", reason="torch cannot make up devices")


@pytest.fixture(scope="module")
def found(tiny_weights, tmp_path_factory):
    """In a process of its own: a device stays registered."""
    script = Path(__file__).with_name("elsewhere.py")
    command = [sys.executable, script, tiny_weights, tmp_path_factory.mktemp("runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_another_device_gives_the_layers_and_states_of_the_cpu(found):
    # The CPU may multiply by another library.
    assert max(found["encode"]["float32"] + found["encode"]["bfloat16"]) < 1e-5


def test_another_device_gives_the_vectors_of_docs(found):
    assert found["pipe"] < 1e-5


def test_pretraining_on_another_device_goes_as_on_the_cpu(found):
    on_cpu, elsewhere = found["pretrain"]
    assert elsewhere == pytest.approx(on_cpu, rel=1e-4)
    assert on_cpu[2] < on_cpu[0]
