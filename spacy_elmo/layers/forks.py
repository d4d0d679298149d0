"""What a forked process (`nlp.pipe(n_process=2)`) must not take over from its parent:
threads that are gone, locks that nobody will release, connections to a file.
"""

import os
from typing import Protocol
from weakref import WeakSet

import torch


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Make locks and connections anew, in the child."""


_alive: "WeakSet[Forkable]" = WeakSet()
_is_guarded = False


def guard(forkable: Forkable) -> None:
    """Call its `after_fork` in every process forked from now on."""
    global _is_guarded
    _alive.add(forkable)
    if not _is_guarded and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
        _is_guarded = True


def _after_fork() -> None:
    # torch's threads did not come along, and the child would wait for them for ever
    # at its first parallel operation. One thread needs no others.
    torch.set_num_threads(1)
    for forkable in list(_alive):
        forkable.after_fork()
