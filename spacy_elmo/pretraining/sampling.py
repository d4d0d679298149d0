import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Sample(NamedTuple):
    """Negatives drawn from P(k) = log((k + 2) / (k + 1)) / log(V + 1), each once.

    ids (Ints1d): The words drawn, shape (n_samples,).
    n_tries (int): Draws that it took to get as many distinct words; 0 says that the
        sample is the whole vocabulary.
    vocab_size (int): V.
    """

    ids: Tensor
    n_tries: int
    vocab_size: int

    def to(self, device: torch.device) -> "Sample":
        return self._replace(ids=self.ids.to(device))

    def log_expected(self, words: Tensor) -> Tensor:
        """The log of how often words are expected in a sample of so many draws.

        words (Ints1d): Word ids, shape (n,).
        RETURNS (Floats1d): Shape (n,).
        """
        if self.n_tries == 0:
            return torch.zeros(len(words), device=words.device)
        p = torch.log1p(1 / (words.double() + 1)) / math.log(self.vocab_size + 1)
        return torch.log(-torch.expm1(self.n_tries * torch.log1p(-p))).float()


def draw_sample(rng: np.random.Generator, n_samples: int, vocab_size: int) -> Sample:
    """Draw distinct negatives for the sampled softmax (Jean et al. 2015) from the
    log-uniform distribution, which is near to that of words by falling frequency.

    rng (Generator): The source of randomness.
    n_samples (int): Distinct words to draw. From vocab_size on all are taken, and
        the sampled softmax is the full one.
    vocab_size (int): V.
    RETURNS (Sample): The negatives.
    """
    if n_samples >= vocab_size:
        return Sample(torch.arange(vocab_size), 0, vocab_size)
    draws: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
    first = draws
    while len(first) < n_samples:
        u = rng.random(max(2 * n_samples, len(draws)))
        # The inverse of the distribution function log(k + 1) / log(V + 1).
        more = np.exp(u * math.log(vocab_size + 1)).astype(np.int64) - 1
        draws = np.concatenate([draws, np.clip(more, 0, vocab_size - 1)])
        first = np.sort(np.unique(draws, return_index=True)[1])
    first = first[:n_samples]
    return Sample(torch.from_numpy(draws[first]), int(first[-1]) + 1, vocab_size)
