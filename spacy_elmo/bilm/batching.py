"""Sentences in batches, and what the LSTMs read of them.

A direction reads a batch packed: time step after time step, and within a step row
after row. Rows are sorted by decreasing length, so that active rows come first.
Sentences with a common prefix share a row until they diverge, since an LSTM's state
depends on nothing but what it has read.
"""

from typing import Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from .characters import BOS_ROW, EOS_ROW

Ints1d = npt.NDArray[np.int64]
# Each word as a row of the table of token vectors.
SentenceRows = Sequence[Sequence[int]]
# The first row of the state to be written, and the rows to be copied there.
Move = Tuple[int, Ints1d]
Moves = Sequence[Sequence[Move]]  # before each step, and after the last


class Reading(NamedTuple):
    """The words that an LSTM reads, and in which rows of its state.

    inputs: The table row of each word, packed.
    sizes: How many are read at each time step.
    moves: The rows of the state to be copied before each step, as sentences part or
        end, and after the last. In the end each sentence's state is in its own row.
    places: For each sentence, where its words are read.
    """

    inputs: Ints1d
    sizes: List[int]
    moves: Moves
    places: List[Ints1d]


class SentenceBatch(NamedTuple):
    """Sentences of similar length.

    order: Which sentences, the longest first.
    rows: The table row of each word, sentence after sentence.
    readings: What the forward and the backward LSTMs read, boundaries included. Their
        places are those of the words, in the order of the sentence.
    """

    order: List[int]
    rows: Ints1d
    readings: List[Reading]


def make_batches(
    sentences: SentenceRows, max_tokens: int, share: bool = True, closed: bool = False
) -> Iterator[SentenceBatch]:
    """Sort sentences by length and cut them into batches of at most `max_tokens`
    tokens, or of one longer sentence. Empty sentences are left out.

    sentences (Sequence[Sequence[int]]): Rows of the table of token vectors.
    share (bool): Whether shared prefixes and suffixes are read once. This requires
        that all sentences start from the same state.
    closed (bool): Whether the LSTMs read the boundary at their end, too. No word's
        vector depends on it; the state after the sentence does.
    """
    # With both boundaries
    lengths = [len(sentence) and len(sentence) + 2 for sentence in sentences]
    for batch in cut_by_length(lengths, max_tokens):
        texts = [list(sentences[i]) for i in batch]
        readings = []
        for first, last, step in ((BOS_ROW, EOS_ROW, 1), (EOS_ROW, BOS_ROW, -1)):
            end = [last] if closed else []
            read = [[first, *text[::step], *end] for text in texts]
            reading = make_reading(read, share)
            places = [
                of_sentence[1 : len(text) + 1][::step]
                for of_sentence, text in zip(reading.places, texts)
            ]
            readings.append(reading._replace(places=places))
        yield SentenceBatch(batch, np.concatenate(texts), readings)


def cut_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[List[int]]:
    """Cut texts, given by their lengths, into batches of at most `max_tokens` tokens,
    or of one longer text: the longest first, without the empty ones.
    """
    batch: List[int] = []
    n_tokens = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not lengths[i]:
            break
        n_tokens += lengths[i]
        if batch and n_tokens > max_tokens:
            yield batch
            batch, n_tokens = [], lengths[i]
        batch.append(i)
    if batch:
        yield batch


def make_reading(sentences: SentenceRows, share: bool = True) -> Reading:
    """Lay out sentences for an LSTM, which reads them from left to right.

    sentences (Sequence[Sequence[int]]): Rows of the table of token vectors, the
        longest sentence first.
    share (bool): Whether sentences that begin alike are read in one row.

    "<S> the dog" and "<S> the cat", where <S> is 0, part at their third word:

    >>> reading = make_reading([[0, 5, 6], [0, 5, 7]])
    >>> reading.inputs.tolist(), reading.sizes  # 0 and 5 are read once
    ([0, 5, 6, 7], [1, 1, 2])
    >>> reading.moves  # before the third step: row 1 begins with the state of row 0
    [[], [], [(1, array([0]))], []]
    >>> reading.places
    [array([0, 1, 2]), array([0, 1, 3])]
    """
    lengths = [len(sentence) for sentence in sentences]
    words, spans = np.concatenate(sentences), spans_of(lengths)
    starts = np.array([start for start, _ in spans])
    # Of each word: its time step, the row in which it is read, and whether it is read
    # there: not if a sentence before it reads the same.
    step = np.arange(len(words)) - np.repeat(starts, lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    read = np.ones(len(words), bool)
    alive = [*np.bincount(step).tolist(), 0]  # sentences that read at each step
    moves: List[List[Move]] = [[] for _ in alive]
    row = np.zeros_like(starts)  # of each sentence, at the step before
    for t, n in enumerate(alive if share else ()):
        at = starts[:n] + t
        # A row for each prefix that is distinct by now, in the order of the first
        # sentences that have it. These are also the longest, so prefixes that continue
        # come before those that end.
        first, following = _distinct(row[:n], words[at])
        # Sentences that have just ended take their state to their own rows. Then each
        # prefix goes on from the row of the prefix that it continues.
        moves[t] = _copies(row[n:], n) + (_copies(row[first], 0) if t else [])
        rows[at] = row = following
        read[at] = np.bincount(first, minlength=n)
        if len(first) == n:
            break  # All have parted: from here on, each is read in its own row.
    sizes = np.bincount(step[read])
    places = (np.cumsum(sizes) - sizes)[step] + rows
    words = words[read][np.argsort(step[read], kind="stable")]
    return Reading(words, sizes.tolist(), moves, [places[a:b] for a, b in spans])


def _distinct(rows: Ints1d, words: Ints1d) -> Tuple[Ints1d, Ints1d]:
    """Number distinct pairs in the order in which they appear.

    RETURNS (Tuple[Ints1d, Ints1d]): Where each is first, and the number of each pair.
    """
    keys = rows * (words.max(initial=0) + 1) + words
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[inverse]


def _copies(sources: Ints1d, start: int) -> List[Move]:
    """The copy that it takes, if any, to move `sources` to rows from `start` on."""
    differs = np.flatnonzero(sources != start + np.arange(len(sources)))
    return [(start + int(differs[0]), sources[differs[0] :])] if len(differs) else []


def spans_of(sizes: Sequence[int]) -> List[Tuple[int, int]]:
    """(start, end) of consecutive runs of these sizes, such as packed time steps."""
    ends = np.cumsum(sizes).tolist()
    return [(end - n, end) for n, end in zip(sizes, ends)]
