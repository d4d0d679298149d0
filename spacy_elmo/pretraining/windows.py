"""The windows of text that a step reads, in both directions."""

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from ..errors import CorpusError, Errors
from .corpus import Corpus
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
    inputs = np.stack([np.roll(forward, 1), backward])
    inputs[0, first] = BOS_ID
    targets = np.stack([forward, np.roll(backward, -1)])
    targets[1, last] = BOS_ID
    return Directions(inputs, targets)


class Rows:
    """The corpus as contiguous rows: documents are shuffled for each epoch and dealt
    out, and each row reads its documents end to end. A batch is the next window of
    `steps` tokens of every row, so that the state of the LSTMs can be carried. A row
    that has read all of its documents goes on with those of the next epoch, whatever
    the others do: nothing is left out at the end of an epoch.

    corpus (Corpus): The text.
    n_rows (int): Rows over all processes: the global batch.
    steps (int): Tokens of a window: how far backpropagation through time goes.
    seed (int): Of the shuffle.
    mine (range): The rows that this process reads; all of them if None.
    RAISES (CorpusError): If there is less text than a document and a window a row.
    """

    def __init__(
        self,
        corpus: Corpus,
        n_rows: int,
        steps: int,
        seed: int,
        mine: Optional[range] = None,
    ):
        n_documents, n_tokens = corpus.documents_per_epoch, corpus.tokens_per_epoch
        if n_documents < n_rows or n_tokens < n_rows * steps:
            raise CorpusError(
                Errors.E052.format(
                    documents=n_documents, tokens=n_tokens, rows=n_rows, steps=steps
                )
            )
        self.corpus = corpus
        self.n_rows = n_rows
        self.steps = steps
        self.seed = seed
        self.mine = range(n_rows) if mine is None else mine
        # For each row: its epoch, its document among those dealt to it, and the
        # token within: all that it takes to go on from here.
        self.positions = np.zeros((len(self.mine), 3), dtype=np.int64)
        self._orders: Dict[int, Ints] = {}
        self._documents: Dict[int, Ints] = {}

    @property
    def epoch(self) -> float:
        """Epochs read, in the mean over the rows."""
        epoch, document, _ = self.positions.mean(axis=0)
        return float(epoch + document * self.n_rows / self.corpus.documents_per_epoch)

    def read(self) -> Directions:
        """The next window, shapes (2, steps, rows)."""
        # Inputs and targets side by side: (2, 2, steps, rows).
        window = np.empty((2, 2, self.steps, len(self.mine)), dtype=np.int64)
        for r in range(len(self.mine)):
            filled = 0
            while filled < self.steps:
                part = self._read_row(r, self.steps - filled)
                n = part.shape[2]
                window[:, :, filled : filled + n, r] = part
                filled += n
        return Directions(*window)

    def load_positions(self, positions: List[List[int]]) -> None:
        """Go on from where the rows of all processes were."""
        self.positions[:] = positions[self.mine.start : self.mine.stop]
        self._documents.clear()

    def _read_row(self, r: int, n: int) -> Ints:
        """At most n tokens of a row, and no more than its document has left."""
        epoch, i, start = self.positions[r].tolist()
        dealt = self._order(epoch)[self.mine[r] :: self.n_rows]
        if r not in self._documents:
            ids = self.corpus.document(dealt[i])
            self._documents[r] = np.stack(directions(ids))
        document = self._documents[r]
        end = min(start + n, document.shape[2])
        self.positions[r, 2] = end
        if end == document.shape[2]:
            del self._documents[r]
            last = i + 1 == len(dealt)
            self.positions[r] = (epoch + 1, 0, 0) if last else (epoch, i + 1, 0)
        return document[:, :, start:end]

    def _order(self, epoch: int) -> Ints:
        """The documents of an epoch in the order of reading."""
        if epoch not in self._orders:
            self._orders[epoch] = self.corpus.epoch(epoch, self.seed)
            for old in [e for e in self._orders if e < self.positions[:, 0].min()]:
                del self._orders[old]
        return self._orders[epoch]
