import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count

import pytest

from spacy_elmo.errors import CorpusError
from spacy_elmo.processes import map_in_processes


def times(factor, number):
    return factor * number


def die(how, number):
    os.kill(os.getpid(), how)


def is_running(pid):
    with suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def wait_for_end(pids, seconds=30):
    """Those that have not ended by then."""
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [pid for pid in pids if is_running(pid)]


def who(shared, number):
    return os.getpid()


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


def test_one_who_stops_reading_waits_for_no_work():
    results = map_in_processes(rest, 99, [0, 1, 1], 2)
    worker = next(results)
    results.close()
    assert not wait_for_end([worker])


SCRIPT = """
import sys, time
sys.path[:0] = sys.argv[1:]
from test_processes import map_in_processes, who

if __name__ == "__main__":
    workers = map_in_processes(who, None, range(99), 2)
    print(next(workers), flush=True)
    time.sleep(99)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="not on Windows")
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), os.path.dirname(__file__)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    assert not wait_for_end([worker])
