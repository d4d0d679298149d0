import os
import signal
import subprocess
import sys
import time
from itertools import count
from multiprocessing import get_context
from operator import mul

import pytest

from spacy_elmo.errors import CorpusError
from spacy_elmo.processes import map_in_processes


def times(factor, number):
    return factor * number


def die(how, number):
    os.kill(os.getpid(), how)


def rest(shared, number):
    time.sleep(shared * number)
    return os.getpid()


def test_results_come_in_order():
    assert list(map_in_processes(times, 3, range(20), 2)) == list(range(0, 60, 3))


def test_little_is_read_ahead():
    read = count()
    results = map_in_processes(times, 1, read, 2)
    assert [next(results) for _ in range(10)] == list(range(10))
    results.close()
    assert next(read) < 20


def test_an_error_reaches_the_caller():
    with pytest.raises(TypeError, match="NoneType"):
        list(map_in_processes(times, 2, [1, None, 3], 2))


def test_a_process_that_dies_is_a_message():
    """Also where SIGTERM is taken as Ctrl+C, as in `init`."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(CorpusError, match="ELMO117.*One of 2 processes died"):
            list(map_in_processes(die, signal.SIGTERM, range(9), 2))
    finally:
        signal.signal(signal.SIGTERM, before)


def ask(stop, _):
    return signal.getsignal(stop)


@pytest.mark.parametrize("mine", [signal.SIG_IGN, signal.default_int_handler])
def test_what_ctrl_c_does_not_stop_keeps_its_workers(mine):
    """A shell that starts a job in the background may have it ignored."""
    before = signal.signal(signal.SIGINT, mine)
    try:
        (found,) = map_in_processes(ask, signal.SIGINT, [0], 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == (signal.SIG_IGN if mine is signal.SIG_IGN else signal.SIG_DFL)


def test_one_who_stops_reading_waits_for_no_work():
    results = map_in_processes(rest, 99, [0, 1, 1], 2)
    worker = next(results)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


STOPPED_AT_BIRTH = """
import os, signal, sys
sys.path[:0] = sys.argv[1:]
from test_processes import CorpusError, map_in_processes, times

signal.signal(signal.SIGTERM, signal.default_int_handler)
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    list(map_in_processes(times, 1, range(9), 2, "fork"))
except BaseException as e:
    print(type(e).__name__, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="not on Windows")
def test_a_worker_that_is_stopped_at_its_birth_runs_no_code_of_its_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STOPPED_AT_BIRTH)
    command = [sys.executable, str(script), os.path.dirname(__file__)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    assert printed.stdout == "CorpusError\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="not on Windows")
def test_processes_that_others_start_later_can_be_stopped():
    context = get_context("forkserver")
    assert list(map_in_processes(mul, 1, range(2), 2, "forkserver")) == [0, 1]
    other = context.Process(target=time.sleep, args=(99,))
    other.start()
    other.terminate()
    other.join(30)
    assert other.exitcode == -signal.SIGTERM


SCRIPT = """
import sys, time
sys.path[:0] = sys.argv[1:]
from test_processes import map_in_processes, times

if __name__ == "__main__":
    results = map_in_processes(times, 1, range(99), 2)
    print(next(results), flush=True)
    time.sleep(99)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    """What it prints to ends when all of them have closed it."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), os.path.dirname(__file__)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "0\n"
        parent.kill()
        assert parent.communicate(timeout=30) == ("", None)
