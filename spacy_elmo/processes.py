"""Work in several processes, and the signals that stop it; a lock among threads."""

import os
import signal
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from threading import RLock, Thread
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, TypeVar

from .errors import CorpusError, Errors

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")

# Items under way for each process.
AHEAD = 2
STOPS = (signal.SIGINT, signal.SIGTERM)
# Held while weights are read or packed, while a cache is used and while the process
# forks, so that the child (nlp.pipe with n_process) finds them whole and the lock free.
LOCK = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire,
        after_in_parent=LOCK.release,
        after_in_child=LOCK.release,
    )


def map_in_processes(
    work: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Iterable[Item],
    n_process: int,
    start: Optional[str] = None,
) -> Iterator[Result]:
    """Work in several processes, a few items ahead of the reader and no more.

    work (Callable[[Shared, Item], Result]): A function that can be pickled.
    shared (Shared): Sent to each process once.
    start (str): How processes start (see `multiprocessing`), or the system's own way.
    YIELDS (Result): work(shared, item) of each item, in order.
    RAISES (CorpusError): If a process dies.
    """
    context, others = get_context(start), active_children()
    with ProcessPoolExecutor(n_process, context, _begin, (shared,)) as pool:
        under_way: deque[Future[Result]] = deque()
        try:
            for item in items:
                with _stops_blocked(context.get_start_method() == "fork"):
                    under_way.append(pool.submit(_work, work, item))
                if len(under_way) == AHEAD * n_process:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BaseException as e:
            for worker in set(active_children()).difference(others):
                worker.terminate()
            if isinstance(e, BrokenProcessPool):
                raise CorpusError(Errors.E117.format(n=n_process)) from None
            raise


@contextmanager
def handling(signals: Iterable[int], handler: Any) -> Iterator[Dict[int, Any]]:
    """Handle signals while the block runs. One that the parent has set to be ignored,
    as `nohup` and a script's `... &` do, stays ignored.

    YIELDS (Dict[int, Any]): The handlers from before, which come back after the block.
    """
    before = {
        number: signal.signal(number, handler)
        for number in signals
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield before
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextmanager
def _stops_blocked(forks: bool) -> Iterator[None]:
    """Workers that fork meanwhile are stopped in `_begin` at the earliest: with the
    parent's handlers they would raise in the middle of its code, and go on with it. A
    fork server would hand the block on to all that it ever starts.
    """
    if not forks:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# What a worker was sent.
_shared: Any = None


def _begin(shared: Any) -> None:
    global _shared
    _shared = shared
    # Ctrl+C reaches the workers too: they end without a traceback each, but not where
    # the parent goes on (`nohup ... &`). What it does on SIGTERM is not theirs.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Idle workers would outlive a parent that is killed."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _work(work: Callable[[Any, Item], Result], item: Item) -> Result:
    return work(_shared, item)
