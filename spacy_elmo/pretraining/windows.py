"""The windows of text that a step reads, in both directions."""

from functools import lru_cache
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Tuple

import numpy as np

from ..bilm.tuning import BLOCK_WINDOWS
from ..errors import CorpusError, Errors
from .vocabulary import BOS_ID, EOS_ID, Ints

if TYPE_CHECKING:  # scores need `directions`, and none of what makes a corpus
    from .corpus import Corpus


def directions(tokens: Ints) -> Ints:
    """The two language models of whole sentences. Forward reads <S> w1 ... wn and
    predicts w1 ... wn </S>; backward reads </S> wn ... w1 and predicts
    wn ... w1 <S>. The order of the sentences is the same for both, as in bilm-tf.

    tokens (Ints1d): Word ids, each sentence closed by </S>; shape (n,).
    RETURNS (Ints3d): Inputs and targets, of each direction, in the order of reading;
        shape (2, 2, n).
    """
    forward = np.asarray(tokens)
    last = np.flatnonzero(forward == EOS_ID)
    first = np.concatenate([[0], last[:-1] + 1])
    # Position k of a sentence that spans [first, last] reads last - (k - first).
    reverse = np.repeat(first + last, last - first + 1) - np.arange(len(forward))
    backward = forward[reverse]
    inputs = np.stack([np.roll(forward, 1), backward])
    inputs[0, first] = BOS_ID
    targets = np.stack([forward, np.roll(backward, -1)])
    targets[1, last] = BOS_ID
    return np.stack([inputs, targets])


class Window(NamedTuple):
    """A window of each row, and its distinct words."""

    inputs: Ints  # word ids, (2, steps, rows)
    targets: Ints  # word ids, (2, steps, rows)
    words: Ints  # distinct word ids, (n_words,)
    places: Ints  # of the inputs among them, (2, steps * rows)


class Rows:
    """The corpus as contiguous rows: documents are shuffled for each epoch and dealt
    out, and each row reads its documents end to end. A batch is the next window of
    `steps` tokens of every row, so that the state of the LSTMs can be carried. A row
    that has read all of its documents continues with those of the next epoch, whatever
    the others do: nothing is left out at the end of an epoch.

    n_rows (int): Rows over all processes: the global batch.
    steps (int): Tokens of a window: how far backpropagation through time goes.
    seed (int): Of the shuffle.
    mine (range): The rows that this process reads; all of them if None.
    RAISES (CorpusError): If there is less text than a document and a window for each
        row.
    """

    def __init__(
        self,
        corpus: "Corpus",
        n_rows: int,
        steps: int,
        seed: int,
        mine: Optional[range] = None,
    ):
        n_documents, n_tokens = corpus.documents_per_epoch, corpus.tokens_per_epoch
        if n_documents < n_rows or n_tokens < n_rows * steps:
            found = {"documents": n_documents, "tokens": n_tokens}
            raise CorpusError(Errors.E052.format(rows=n_rows, steps=steps, **found))
        self.corpus = corpus
        self.n_rows = n_rows
        self.steps = steps
        self.mine = range(n_rows) if mine is None else mine
        # The position of each row before the current block: its epoch, its document
        # among those dealt to it, and the token within.
        self._start = np.zeros((len(self.mine), 3), dtype=np.int64)
        self._block = np.empty((2, 2, 0, len(self.mine)), dtype=np.int64)
        self._n_read = 0  # tokens of each row of the block
        self._ahead: Optional[Window] = None
        # The documents of an epoch in the order of reading, for the epochs of all rows.
        self._order = lru_cache(4)(lambda epoch: corpus.epoch(epoch, seed))

    @property
    def positions(self) -> Ints:
        """Where each row is, (n, 3): all that it takes to resume from here."""
        rows = range(len(self.mine))
        return np.stack([self._skip(r, self._n_read)[0] for r in rows])

    @property
    def epoch(self) -> float:
        """Epochs read, averaged over the rows."""
        epoch, document, _ = self.positions.mean(axis=0)
        return float(epoch + document * self.n_rows / self.corpus.documents_per_epoch)

    def load_positions(self, positions: List[List[int]]) -> None:
        """Resume from where the rows of all processes were."""
        start = np.array(positions)[self.mine.start : self.mine.stop]
        if start.shape != self._start.shape or start.min() < 0:
            raise ValueError("rows are at impossible places")
        self._start[:] = start
        self._block = self._block[:, :, :0]
        self._n_read = 0
        self._ahead = None

    def read(self) -> Window:
        """The next window."""
        window = self.look_ahead()
        self._n_read += self.steps
        self._ahead = None
        return window

    def look_ahead(self) -> Window:
        """The window that `read` will return: to prepare it while a GPU works."""
        if self._ahead is None:
            if self._n_read == self._block.shape[2]:
                self._read_block()
            here = slice(self._n_read, self._n_read + self.steps)
            inputs, targets = self._block[:, :, here]
            words, places = np.unique(inputs, return_inverse=True)
            self._ahead = Window(inputs, targets, words, places.reshape(2, -1))
        return self._ahead

    def _read_block(self) -> None:
        """Cut out the next BLOCK_WINDOWS windows of all rows at once, which takes half
        the time of row after row.
        """
        self._start, n = self.positions, BLOCK_WINDOWS * self.steps
        texts: List[Ints] = []  # whole sentences
        firsts = np.zeros((len(self.mine), 1), dtype=np.int64)  # tokens of the rows
        n_before = 0
        for r in range(len(self.mine)):
            for k, (document, start, end) in enumerate(self._skip(r, n)[1]):
                tokens = self.corpus.document(document)
                sentences, first = _sentences(tokens, start, end)
                if k == 0:
                    firsts[r] = n_before + first
                texts.append(sentences)
                n_before += len(sentences)
        both = directions(np.concatenate(texts))
        self._block = both[:, :, firsts + np.arange(n)].swapaxes(2, 3)
        self._n_read = 0

    def _skip(self, r: int, n: int) -> Tuple[List[int], List[Tuple[int, int, int]]]:
        """Where a row is n tokens after the start of the block, and what it reads on
        the way: documents, each with its first token and the one after its last.
        """
        epoch, i, start = self._start[r].tolist()
        spans: List[Tuple[int, int, int]] = []
        while n:
            dealt = self._order(epoch)[self.mine[r] :: self.n_rows]
            document = int(dealt[i])
            length = int(np.diff(self.corpus.starts[document : document + 2])[0])
            if start >= length:
                raise ValueError("a row is behind the end of its document")
            end = min(start + n, length)
            spans.append((document, start, end))
            n -= end - start
            start = end
            if end == length:
                last = i + 1 == len(dealt)
                epoch, i, start = (epoch + 1, 0, 0) if last else (epoch, i + 1, 0)
        return [epoch, i, start], spans


def _sentences(document: Ints, start: int, end: int) -> Tuple[Ints, int]:
    """The sentences of tokens start to end, and where the first token is in them."""
    if start == 0 and end == len(document):
        return document, 0
    closed = np.flatnonzero(document == EOS_ID)
    before, last = np.searchsorted(closed, (start, end - 1))
    first = int(closed[before - 1]) + 1 if before else 0
    return document[first : closed[last] + 1], start - first
