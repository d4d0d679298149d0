"""The windows of text that a step reads, in both directions."""

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import torch

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
    inputs = np.stack([_shift(forward, 1), backward])
    inputs[0, first] = BOS_ID
    targets = np.stack([forward, _shift(backward, -1)])
    targets[1, last] = BOS_ID
    return Directions(inputs, targets)


def _shift(x: Ints, n: int) -> Ints:
    """`np.roll` of one axis; what comes around is overwritten by the caller."""
    return np.concatenate([x[-n:], x[:-n]])


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
    first, last (int): The rows that this process reads.
    """

    def __init__(
        self, corpus: Corpus, n_rows: int, steps: int, seed: int, first: int, last: int
    ):
        _check_size(corpus, n_rows, steps)
        self.corpus = corpus
        self.n_rows = n_rows
        self.steps = steps
        self.seed = seed
        self.rows = range(first, last)
        # For each row: its epoch, its document among those dealt to it, and the
        # token within: all that it takes to go on from here.
        self.positions = np.zeros((len(self.rows), 3), dtype=np.int64)
        self._orders: Dict[int, Ints] = {}
        self._documents: List[Optional[Ints]] = [None] * len(self.rows)

    @property
    def epoch(self) -> float:
        """Epochs read, in the mean over the rows."""
        epoch, document, _ = self.positions.mean(axis=0)
        return float(epoch + document * self.n_rows / self.corpus.documents_per_epoch)

    def read(self) -> Directions:
        """The next window, shapes (2, steps, rows)."""
        # Inputs and targets side by side: (2, 2, steps, rows).
        window = np.empty((2, 2, self.steps, len(self.rows)), dtype=np.int64)
        for r in range(len(self.rows)):
            filled = 0
            while filled < self.steps:
                document = self._document(r)
                at = self.positions[r, 2]
                part = document[:, :, at : at + self.steps - filled]
                n = part.shape[2]
                window[:, :, filled : filled + n, r] = part
                filled += n
                self.positions[r, 2] += n
                if self.positions[r, 2] == document.shape[2]:
                    self._next_document(r)
        return Directions(*window)

    def positions_tensor(self, device: torch.device) -> torch.Tensor:
        """Where the rows of this process are, shape (rows, 3)."""
        return torch.from_numpy(self.positions.copy()).to(device)

    def load_positions(self, positions: List[List[int]]) -> None:
        """Go on from where the rows of all processes were."""
        self.positions[:] = positions[self.rows.start : self.rows.stop]
        self._documents = [None] * len(self.rows)

    def _document(self, r: int) -> Ints:
        """Inputs and targets of the document that a row reads, (2, 2, n)."""
        document = self._documents[r]
        if document is None:
            epoch, i, _ = self.positions[r]
            ids = self.corpus.document(self._dealt(epoch, r)[i])
            document = self._documents[r] = np.stack(directions(ids))
        return document

    def _next_document(self, r: int) -> None:
        epoch, i, _ = self.positions[r]
        last = i + 1 == len(self._dealt(epoch, r))
        self.positions[r] = (epoch + 1, 0, 0) if last else (epoch, i + 1, 0)
        self._documents[r] = None

    def _dealt(self, epoch: int, r: int) -> Ints:
        """The documents of a row in an epoch, in the order of reading."""
        if epoch not in self._orders:
            self._orders[epoch] = self.corpus.epoch(epoch, self.seed)
            for old in [e for e in self._orders if e < self.positions[:, 0].min()]:
                del self._orders[old]
        return self._orders[epoch][self.rows[r] :: self.n_rows]


def _check_size(corpus: Corpus, n_rows: int, steps: int) -> None:
    """Each row must have a document in each epoch, and a window of text."""
    n_tokens, n_documents = corpus.tokens_per_epoch, corpus.documents_per_epoch
    if n_documents < n_rows:
        found, advice = f"{n_documents:,} documents", "'training.rows'"
        why = f"for {n_rows} rows: each row reads documents of its own"
    elif n_tokens < n_rows * steps:
        found, why = f"{n_tokens:,.0f} tokens", f"for {n_rows} rows of {steps} tokens"
        advice = "'training.rows' or 'training.unroll_steps'"
    else:
        return
    raise CorpusError(Errors.E052.format(found=found, why=why, advice=advice))
