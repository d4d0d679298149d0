"""How a direction reads a batch: sentences that begin alike are read as one up to the
word at which they part, since an LSTM's state depends on nothing but what it has read.
"""

from typing import List, NamedTuple, Tuple

import numpy as np
import numpy.typing as npt

from .packing import batch_sizes, packed_positions

Ints1d = npt.NDArray[np.int64]
# The first row of the state to be written, and the rows to be copied there.
Move = Tuple[int, Ints1d]


class Reading(NamedTuple):
    """The words that an LSTM reads, depth after depth, each in a row of its state. A
    depth has fewer of them than sentences as long as some have begun alike.

    words: The table row of each.
    sizes: How many there are at each depth.
    moves: The rows of the state to be copied before each depth, as sentences part or
        end, and after the last. In the end each sentence's state is in its own row.
    places: Where each word of each sentence is read, sentence after sentence.
    """

    words: Ints1d
    sizes: List[int]
    moves: List[List[Move]]
    places: Ints1d


def make_reading(words: Ints1d, lengths: Ints1d, share: bool = True) -> Reading:
    """Lay out sentences for an LSTM, which reads them from left to right.

    words (Ints1d): Rows of the table of token vectors, sentence after sentence.
    lengths (Ints1d): Of the sentences, falling.
    share (bool): Whether sentences that begin alike are read as one: all must start
        from the same state.
    """
    packed = np.concatenate(packed_positions(lengths.tolist()))
    by_depth = np.empty_like(words)
    by_depth[packed] = words
    n_words = int(words.max()) + 1
    own = np.arange(len(lengths))
    # The row of the state in which each sentence is read. Rows are numbered in the
    # order of their first, and so longest, sentence: those that go on stay in front.
    row = np.zeros_like(own) if share else own
    read: List[Ints1d] = []
    sizes: List[int] = []
    moves: List[List[Move]] = []
    places: List[Ints1d] = []
    start, n_read, n_before = 0, 0, len(own)
    for n in batch_sizes(lengths.tolist()):
        now = by_depth[start : start + n]
        move = _copy(own[n:n_before], row[n:n_before])
        first = following = own[:n]
        if share:
            first, following = _distinct(row[:n] * n_words + now)
            if start:
                move += _copy(own[: len(first)], row[first])
            row = np.concatenate([following, own[n:]])
            share = len(first) < n
        read.append(now[first])
        sizes.append(len(first))
        moves.append(move)
        places.append(n_read + following)
        start, n_read, n_before = start + n, n_read + len(first), n
    moves.append(_copy(own[:n_before], row[:n_before]))
    return Reading(np.concatenate(read), sizes, moves, np.concatenate(places)[packed])


def _distinct(keys: Ints1d) -> Tuple[Ints1d, Ints1d]:
    """Number distinct keys in the order in which they appear.

    RETURNS (Tuple[Ints1d, Ints1d]): Where each of them is first, and the number of
        each key.
    """
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def _copy(to: Ints1d, source: Ints1d) -> List[Move]:
    """The copy that it takes, if any, where rows `to` follow one another."""
    differs = np.flatnonzero(to != source)
    return [(int(to[differs[0]]), source[differs[0] :])] if len(differs) else []
