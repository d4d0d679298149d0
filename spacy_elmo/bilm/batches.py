from typing import Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from .reading import Reading, make_reading

Ints1d = npt.NDArray[np.int64]

# Where a table of token vectors has the boundaries `<S>` and `</S>`.
BOS_ROW, EOS_ROW = 0, 1


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
    share (bool): Whether what sentences begin or end with alike is read once, which
        takes that they all start from the same state.
    closed (bool): Whether the LSTMs read the boundary at their end, too. No word's
        vector depends on it; the state after the sentence does.
    """
    order = sorted(
        (r for r, sentence in enumerate(sentences) if len(sentence)),
        key=lambda r: -len(sentences[r]),
    )
    start = 0
    while start < len(order):
        end, n_tokens = start + 1, len(sentences[order[start]]) + 2
        while end < len(order):
            n_tokens += len(sentences[order[end]]) + 2
            if n_tokens > max_tokens:
                break
            end += 1
        rows = order[start:end]
        start = end
        yield _make_batch(rows, [sentences[r] for r in rows], share, closed)


def _make_batch(
    rows: List[int],
    sentences: Sequence[Sequence[int] | Ints1d],
    share: bool,
    closed: bool,
) -> SentenceBatch:
    words = np.concatenate([np.asarray(s, dtype=np.int64) for s in sentences])
    lengths = np.array([len(s) for s in sentences])
    ends = np.cumsum(lengths)
    n_read = lengths + (2 if closed else 1)
    begins = np.cumsum(n_read) - n_read
    inside = np.arange(len(words)) - np.repeat(ends - lengths, lengths)
    readings = []
    for first, last, where in (
        (BOS_ROW, EOS_ROW, np.repeat(begins + 1, lengths) + inside),
        (EOS_ROW, BOS_ROW, np.repeat(begins + lengths, lengths) - inside),
    ):
        read = np.full(n_read.sum(), first)
        read[where] = words
        if closed:
            read[begins + lengths + 1] = last
        reading = make_reading(read, n_read, share)
        readings.append(reading._replace(places=reading.places[where]))
    spans = list(zip((ends - lengths).tolist(), ends.tolist()))
    return SentenceBatch(rows, words, spans, (readings[0], readings[1]))
