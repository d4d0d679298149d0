"""Training on several processes, which `torchrun` starts."""

import atexit
import os
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Iterator, List, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

# How long processes wait for one another. The first one tokenizes the text alone, which
# may take hours. `torchrun` ends the others where one fails.
LONGEST_WAIT = timedelta(days=7)


class Processes(NamedTuple):
    """The processes of a run, and which one this is."""

    rank: int = 0  # this one
    n: int = 1  # of how many
    device: torch.device = torch.device("cpu")  # where this one computes

    @property
    def is_first(self) -> bool:
        """Whether this is the one that reports and writes."""
        return self.rank == 0

    def wait(self) -> None:
        """Block until all processes have arrived."""
        if self.n > 1:
            dist.barrier()

    @contextmanager
    def first_ahead(self) -> Iterator[None]:
        """The first process runs the block before the others do."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        if self.n > 1:
            dist.all_reduce(x)
        return x

    def concatenate(self, x: Tensor) -> Tensor:
        """What all have, rank after rank, on the host. Lengths may differ."""
        parts: List[Any] = [x.cpu()] * self.n
        if self.n > 1:
            dist.all_gather_object(parts, x.cpu())
        return torch.cat(parts)

    def share(self, n_rows: int) -> range:
        """The rows of this process, of n_rows over all."""
        first, last = (n_rows * r // self.n for r in (self.rank, self.rank + 1))
        return range(first, last)


ALONE = Processes()  # on the CPU


@contextmanager
def joined_processes(wanted: str) -> Iterator[Processes]:
    """The processes that `torchrun` has started, or this one alone. They exchange
    gradients by NCCL on GPUs and by gloo on CPUs.

    wanted (str): "cpu", or "auto" for a GPU each where there are any.
    """
    local = int(os.environ.get("LOCAL_RANK", 0))
    on_gpu = wanted == "auto" and torch.cuda.is_available()
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    n = int(os.environ.get("WORLD_SIZE", 1))
    if n == 1:
        yield Processes(device=device)
        return
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=LONGEST_WAIT)
    try:
        yield Processes(dist.get_rank(), n, device)
    finally:
        dist.destroy_process_group()


def leave_joined_processes() -> None:
    """End this process, if it is one of several, without Python's own shutdown: there,
    a thread that DistributedDataParallel leaves running (gloo, torch 2.13) would abort
    the process.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
