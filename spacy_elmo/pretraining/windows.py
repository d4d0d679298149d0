from typing import Any, Dict, List, Optional

import numpy as np
import numpy.typing as npt
import torch

from ..errors import CorpusError, Errors
from .corpus import Corpus
from .directions import Directions, directions

Ints = npt.NDArray[Any]


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
        n_tokens, n_documents = len(corpus.tokens), corpus.n_documents
        if n_tokens < n_rows * steps or n_documents < n_rows:
            raise CorpusError(
                Errors.E052.format(
                    found=n_tokens, documents=n_documents, rows=n_rows, steps=steps
                )
            )
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
        return float(epoch + document * self.n_rows / self.corpus.n_documents)

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
            rng = np.random.default_rng([self.seed, epoch])
            self._orders[epoch] = rng.permutation(self.corpus.n_documents)
            for old in [e for e in self._orders if e < self.positions[:, 0].min()]:
                del self._orders[old]
        return self._orders[epoch][self.rows[r] :: self.n_rows]
