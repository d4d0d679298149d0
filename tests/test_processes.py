import os
import signal
from itertools import count

import pytest

from spacy_elmo.errors import CorpusError
from spacy_elmo.processes import map_in_processes


def times(factor, number):
    return factor * number


def die(how, number):
    os.kill(os.getpid(), how)


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
    with pytest.raises(CorpusError, match="ELMO117.*One of 2 processes died"):
        list(map_in_processes(die, signal.SIGTERM, range(9), 2))
