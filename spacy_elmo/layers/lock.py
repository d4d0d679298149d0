"""Held by who reads weights or touches a cache, and while a process forks: the child
of `nlp.pipe(n_process=2)` finds them whole, and the lock free.
"""

import os
from threading import RLock

import torch

LOCK = RLock()


def _after_fork_in_child() -> None:
    LOCK.release()
    # torch's threads did not come along, and the child would wait for them for ever
    # at its first parallel operation. One thread needs no others.
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire,
        after_in_parent=LOCK.release,
        after_in_child=_after_fork_in_child,
    )
