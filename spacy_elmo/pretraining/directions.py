from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .vocabulary import BOS_ID, EOS_ID

Ints = npt.NDArray[Any]


class Directions(NamedTuple):
    """What each direction reads and predicts, in the order of reading. Axis 0 is
    the direction: 0 forward, 1 backward.
    """

    inputs: Ints
    targets: Ints


def directions(tokens: Ints) -> Directions:
    """The two language models of whole sentences. Forward reads <S> w1 ... wn and
    predicts w1 ... wn </S>; backward reads </S> wn ... w1 and predicts
    wn ... w1 <S>. The order of the sentences is the same for both, as in bilm-tf.

    tokens (Ints1d): Word ids, each sentence closed by </S>; shape (n,).
    RETURNS (Directions): Shapes (2, n).
    """
    forward = np.asarray(tokens)
    last = np.flatnonzero(forward == EOS_ID)
    first = np.concatenate([[0], last[:-1] + 1])
    # Position k of a sentence that spans [first, last] reads last - (k - first).
    reverse = np.repeat(first + last, last - first + 1) - np.arange(len(forward))
    backward = forward[reverse]
    inputs = np.stack([_shift(forward, 1), backward])
    inputs[0, first] = BOS_ID
    targets = np.stack([forward, _shift(backward, -1)])
    targets[1, last] = BOS_ID
    return Directions(inputs, targets)


def _shift(x: Ints, n: int) -> Ints:
    """`np.roll` of one axis; what comes around is overwritten by the caller."""
    return np.concatenate([x[-n:], x[:-n]])
