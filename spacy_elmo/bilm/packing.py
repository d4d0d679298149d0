"""Packed batches: time step after time step, and within a step the rows in falling
order of their length. Row r of step t stands at `starts[t] + r`.
"""

from typing import List, Sequence, Tuple

import numpy as np
import numpy.typing as npt

Ints1d = npt.NDArray[np.int64]


def batch_sizes(lengths: Sequence[int]) -> List[int]:
    """Rows alive at each time step, given the rows' lengths in falling order."""
    if len(lengths) == 0:
        return []
    # Row r is alive at the steps before lengths[r]: count the rows beyond each step.
    ending = np.bincount(np.asarray(lengths), minlength=int(lengths[0]) + 1)
    alive = len(lengths) - np.cumsum(ending)
    return [int(n) for n in alive[: int(lengths[0])]]


def packed_steps(sizes: Sequence[int]) -> List[Tuple[int, int]]:
    """(start, end) of each time step in packed order."""
    ends = np.cumsum(sizes).tolist()
    return [(end - n, end) for n, end in zip(sizes, ends)]


def packed_positions(lengths: Sequence[int]) -> List[Ints1d]:
    """Where each row's tokens stand in packed order, given the rows' lengths in
    falling order: one array of shape (length,) a row.
    """
    sizes = batch_sizes(lengths)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return [starts[:n] + r for r, n in enumerate(lengths)]
