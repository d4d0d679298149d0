"""Products of the layers above a listener, by torch: faster than BLIS, which Thinc
takes otherwise (benchmarks/profile_pipeline.py).
"""

from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, Iterator, Optional

import torch
from thinc.api import Model, NumpyOps

from ..bilm.kernels import matmul, no_autocast
from ..bilm.tuning import THREADED_PRODUCT


class TorchOps(NumpyOps):
    """NumpyOps whose products are torch's."""

    def gemm(
        self,
        x: Any,
        y: Any,
        out: Optional[Any] = None,
        trans1: bool = False,
        trans2: bool = False,
    ) -> Any:
        """x y, each transposed if asked for: (n, n_in) and (n_in, n_out)."""
        n_rows = x.shape[1] if trans1 else len(x)
        n_threads = 1 if n_rows * y.size < THREADED_PRODUCT else torch.get_num_threads()
        # torch has no tensors that are not writeable. And threads that start while its
        # number of threads is changed keep that number: a server's would.
        if not (x.flags.writeable and y.flags.writeable and _may_set(n_threads)):
            return super().gemm(x, y, out=out, trans1=trans1, trans2=trans2)
        a, b = (torch.from_numpy(self.as_contig(array)) for array in (x, y))
        a, b = a.t() if trans1 else a, b.t() if trans2 else b
        with using_threads(n_threads), no_autocast(a):
            z = matmul(a, b).numpy()
        if out is None:
            return z
        out[:] = z
        return out


def _may_set(n_threads: int) -> bool:
    return n_threads == torch.get_num_threads() or current_thread() is main_thread()


@contextmanager
def using_threads(n_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_torch_ops(model: Model[Any, Any]) -> None:
    """Let the layers of a model multiply by torch where they would by BLIS. Those that
    somebody has given other ops keep them.
    """
    for node in model.walk():
        ops: Any = node.ops
        if type(ops) is NumpyOps and ops.use_blis:
            node.ops = TorchOps()
