"""Sentences in batches, and what the LSTMs read of them.

A direction reads a batch packed: time step after time step, and within a step row
after row. Rows are in falling order of length, so that those still alive come first.
Sentences that begin alike share one row up to the word at which they part, since an
LSTM's state depends on nothing but what it has read.
"""

from typing import Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from .characters import BOS_ROW, EOS_ROW

Ints1d = npt.NDArray[np.int64]
# The first row of the state to be written, and the rows to be copied there.
Move = Tuple[int, Ints1d]


class Reading(NamedTuple):
    """The words that an LSTM reads, and in which rows of its state.

    words: The table row of each word, packed.
    sizes: How many are read at each time step.
    moves: The rows of the state to be copied before each step, as sentences part or
        end, and after the last. In the end each sentence's state is in its own row.
    places: Where each word of each sentence is read, sentence after sentence.
    """

    words: Ints1d
    sizes: List[int]
    moves: List[List[Move]]
    places: Ints1d


class SentenceBatch(NamedTuple):
    """Sentences of like length.

    rows: Which sentences, the longest first.
    words: The table row of each word, sentence after sentence.
    spans: Where the words of each sentence stand there.
    readings: What the forward and the backward LSTMs read.
    """

    rows: List[int]
    words: Ints1d
    spans: List[Tuple[int, int]]
    readings: Tuple[Reading, Reading]


def make_batches(
    sentences: Sequence[Sequence[int] | Ints1d],
    max_tokens: int,
    share: bool = True,
    closed: bool = False,
) -> Iterator[SentenceBatch]:
    """Sort sentences by length and cut them into batches of at most `max_tokens`
    tokens, or of one longer sentence. Empty sentences are left out.

    sentences (Sequence[Sequence[int]]): Rows of the table of token vectors.
    share (bool): Whether what sentences begin or end with alike is read once. All
        must start from the same state.
    closed (bool): Whether the LSTMs read the boundary at their end, too. No word's
        vector depends on it; the state after the sentence does.
    """
    lengths = [len(sentence) for sentence in sentences]
    order = sorted(
        (row for row, n in enumerate(lengths) if n), key=lambda row: -lengths[row]
    )
    rows: List[int] = []
    n_tokens = 0
    for row in order:
        n_tokens += lengths[row] + 2
        if rows and n_tokens > max_tokens:
            yield _make_batch(rows, sentences, share, closed)
            rows, n_tokens = [], lengths[row] + 2
        rows.append(row)
    if rows:
        yield _make_batch(rows, sentences, share, closed)


def _make_batch(
    rows: List[int],
    sentences: Sequence[Sequence[int] | Ints1d],
    share: bool,
    closed: bool,
) -> SentenceBatch:
    words = np.concatenate([np.asarray(sentences[r], dtype=np.int64) for r in rows])
    lengths = np.array([len(sentences[r]) for r in rows])
    ends = np.cumsum(lengths)
    starts = ends - lengths
    # What is read: the boundary, the words and, if closed, the other boundary.
    n_read = lengths + (2 if closed else 1)
    begins = np.cumsum(n_read) - n_read
    position = np.arange(len(words)) - np.repeat(starts, lengths)
    forward = np.repeat(begins + 1, lengths) + position
    backward = np.repeat(begins + lengths, lengths) - position
    readings = []
    for first, last, where in (
        (BOS_ROW, EOS_ROW, forward),
        (EOS_ROW, BOS_ROW, backward),
    ):
        read = np.full(n_read.sum(), first)
        read[where] = words
        if closed:
            read[begins + lengths + 1] = last
        reading = make_reading(read, n_read, share)
        readings.append(reading._replace(places=reading.places[where]))
    spans = list(zip(starts.tolist(), ends.tolist()))
    return SentenceBatch(rows, words, spans, (readings[0], readings[1]))


def make_reading(words: Ints1d, lengths: Ints1d, share: bool = True) -> Reading:
    """Lay out sentences for an LSTM, which reads them from left to right.

    words (Ints1d): Rows of the table of token vectors, sentence after sentence.
    lengths (Ints1d): Of the sentences, falling.
    share (bool): Whether sentences that begin alike are read in one row.

    "<S> the dog" and "<S> the cat", where <S> is 0, part at their third word:

    >>> reading = make_reading(np.array([0, 5, 6, 0, 5, 7]), np.array([3, 3]))
    >>> reading.words, reading.sizes  # 0 and 5 are read once
    (array([0, 5, 6, 7]), [1, 1, 2])
    >>> reading.moves  # before the third step: row 1 begins with the state of row 0
    [[], [], [(1, array([0]))], []]
    >>> reading.places
    array([0, 1, 2, 0, 1, 3])
    """
    packed = np.concatenate(packed_positions(lengths.tolist()))
    by_step = np.empty_like(words)
    by_step[packed] = words
    n_words = int(words.max()) + 1
    own = np.arange(len(lengths))
    # The row in which each sentence is read: that of its beginning. Beginnings are
    # numbered by their first, and so longest, sentence: those that go on come first.
    row = np.zeros_like(own) if share else own
    read: List[Ints1d] = []
    moves: List[List[Move]] = []
    places: List[Ints1d] = []
    n_packed = n_read = 0
    n_before = len(own)
    for n in batch_sizes(lengths.tolist()):
        now = by_step[n_packed : n_packed + n]
        first, beginning = _number(row[:n] * n_words + now)
        ended = own[n:n_before]
        parted = own[: len(first)] if n_packed else own[:0]
        moves.append(_copies(row[ended], ended) + _copies(row[first], parted))
        read.append(now[first])
        places.append(n_read + beginning)
        row = np.concatenate([beginning, own[n:]])
        n_packed, n_read, n_before = n_packed + n, n_read + len(first), n
    moves.append(_copies(row[:n_before], own[:n_before]))
    sizes = [len(step) for step in read]
    return Reading(np.concatenate(read), sizes, moves, np.concatenate(places)[packed])


def _number(keys: Ints1d) -> Tuple[Ints1d, Ints1d]:
    """Number distinct keys in the order in which they appear.

    RETURNS (Tuple[Ints1d, Ints1d]): Where each of them is first, and the number of
        each key.
    """
    if len(keys) == 1:
        return np.zeros_like(keys), np.zeros_like(keys)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def _copies(source: Ints1d, to: Ints1d) -> List[Move]:
    """The copy that it takes, if any, where rows `to` follow one another."""
    differs = np.flatnonzero(source[: len(to)] != to)
    return [(int(to[differs[0]]), source[differs[0] :])] if len(differs) else []


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
    falling order: one array of shape (length,) per row.
    """
    sizes = batch_sizes(lengths)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return [starts[:n] + r for r, n in enumerate(lengths)]
