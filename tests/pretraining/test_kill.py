"""`kill -9` at random moments, and the same command again: nothing is lost."""

import os
import random
import time

from runs import assert_same_run, run

# KILLS=10 pytest tests/pretraining/test_kill.py for a longer run
KILLS = int(os.environ.get("KILLS", "2"))


def last_checkpoint(output):
    """Changes whenever a checkpoint is written."""
    path = output / "checkpoint.pt"
    return path.stat().st_mtime_ns if path.is_file() else 0


def test_a_run_that_is_killed_again_and_again_ends_as_an_unbroken_one(
    make_settings, start_process, tmp_path
):
    make_settings(
        100, max_tokens=2_000, checkpoint_steps=3, log_steps=1, eval_steps=1000
    )
    config = tmp_path / "config.cfg"
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    run(config, unbroken)
    rng, n_kills = random.Random(0), 0
    while n_kills < KILLS:
        process, before = start_process(run, config, broken), last_checkpoint(broken)
        while process.is_alive() and last_checkpoint(broken) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.15))
        if not process.is_alive():
            break  # it was faster
        process.kill()
        process.join()
        n_kills += 1
    assert n_kills > 0
    last = start_process(run, config, broken)
    last.join()
    assert last.exitcode == 0
    assert_same_run(broken, unbroken)
    assert not list(broken.glob(".*"))
