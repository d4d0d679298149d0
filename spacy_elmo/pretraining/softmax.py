import math
from typing import Any, List, NamedTuple, Optional, Tuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..bilm.kernels import casting, fused, matmul, no_autocast
from ..bilm.tuning import LOSS_TOKENS, MAX_LOGITS, MAX_LOGITS_OF_GPU
from .vocabulary import Floats1d


class Sample(NamedTuple):
    """Negatives drawn from P(k) = log((k + 2) / (k + 1)) / log(V + 1), each once."""

    ids: Tensor  # the words drawn, shape (n_samples,)
    n_tries: int  # draws that it took; 0 for the whole vocabulary
    vocab_size: int  # V

    def to(self, device: torch.device) -> "Sample":
        return self._replace(ids=self.ids.to(device))

    def log_expected(self, words: Tensor) -> Tensor:
        """The log of how often words, (n,) ids, are expected in a sample: (n,)."""
        if self.n_tries == 0:
            return torch.zeros(len(words), device=words.device)
        p = torch.log1p(1 / (words.double() + 1)) / math.log(self.vocab_size + 1)
        return torch.log(-torch.expm1(self.n_tries * torch.log1p(-p))).float()


def draw_sample(rng: np.random.Generator, n_samples: int, vocab_size: int) -> Sample:
    """Draw distinct negatives for the sampled softmax (Jean et al. 2015) from the
    log-uniform distribution, which is near to that of words by falling frequency.

    n_samples (int): Distinct words to draw. From vocab_size on all are taken, each
        once: that is the full softmax.
    vocab_size (int): V.
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
        # Where each word was drawn first: the last of these that is written. Sorting
        # all draws takes four times as long.
        place = np.full(vocab_size, -1)
        place[draws[::-1]] = np.arange(len(draws))[::-1]
        first = np.sort(place[place >= 0])
    first = first[:n_samples]
    return Sample(torch.from_numpy(draws[first]), int(first[-1]) + 1, vocab_size)


class Softmax(nn.Module):
    """The word softmax of the language model, shared by both directions.

    vocab_size (int): Words, the special ones included.
    width (int): The projection of the biLM.
    """

    def __init__(self, vocab_size: int, width: int):
        super().__init__()
        self.vocab_size = vocab_size
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def initialize(self, seed: int, targets: Optional[Floats1d] = None) -> "Softmax":
        """Draw the weights.

        targets (Floats1d): How often each word is a target, (vocab_size,): it begins as
            likely as that. A short run would need hundreds of updates to learn it.
        """
        generator = torch.Generator().manual_seed(seed)
        std = 1 / math.sqrt(self.weight.shape[1])
        nn.init.normal_(self.weight, 0.0, std, generator=generator)
        if targets is not None:
            n = targets + 0.5  # also of a word that is not there
            with torch.no_grad():
                self.bias.copy_(torch.from_numpy(np.log(n / n.sum())))
        return self

    def forward(self, h: Tensor, targets: Tensor, sample: Sample) -> Tensor:
        """The mean negative log likelihood of the targets, in nats.

        h (Floats2d): Outputs of the top layer, shape (n, width).
        targets (Ints1d): Word ids, shape (n,).
        RETURNS (Floats0d): The loss, which can be differentiated.
        """
        return _SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
            h, self.weight, self.bias, targets, sample
        )

    @torch.no_grad()
    def log_likelihood(self, h: Tensor, targets: Tensor) -> Tensor:
        """The exact log likelihood, (n,), of the targets in nats; see `forward`."""
        parts: List[Tensor] = []
        with no_autocast(h):
            for chunk in _token_chunks(h, len(self.bias)):
                logits = matmul(h[chunk], self.weight.t()).add_(self.bias)
                target = logits.gather(1, targets[chunk, None])[:, 0]
                parts.append(target - logits.logsumexp(1))
        return torch.cat(parts)


class _SoftmaxLoss(torch.autograd.Function):
    """Forward and backward in one go, a chunk of tokens at a time: the logits of a
    whole batch never exist at once. Products run in autocast's dtype.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor,
        sample: Sample,
    ) -> Tensor:  # fmt: skip
        with casting(weight) as dtype:
            loss, *ctx.gradients = _loss_and_gradients(
                h.float(), weight, bias, targets, sample, dtype
            )
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, ()  # they are changed in place
        return *(d.mul_(d_loss) for d in gradients), None, None


def _loss_and_gradients(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, sample: Sample,
    dtype: torch.dtype,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    n, ids = len(targets), sample.ids
    w = weight.index_select(0, ids).to(dtype)  # (S, width)
    # Subtract the log of the expected count: the sampled softmax then estimates the
    # full one. A negative that is the target is taken out.
    offset = bias[ids] - sample.log_expected(ids)
    place = torch.full_like(bias, -1, dtype=torch.int64)  # of each word among them
    place[ids] = torch.arange(len(ids), device=h.device)
    dh = torch.empty_like(h)
    d_w = torch.zeros(w.shape, device=h.device)
    d_offset = torch.zeros_like(offset)
    d_bias = torch.zeros_like(bias)
    d_target = torch.empty_like(h)  # of the row of each token's target
    total = h.new_zeros(())
    for chunk in _token_chunks(h, len(w)):
        h_c, target = h[chunk], targets[chunk]
        logits = matmul(h_c.to(dtype), w.t())  # (chunk, S)
        w_true = weight.index_select(0, target)
        true = (h_c * w_true).sum(1)
        true += bias[target] - sample.log_expected(target)
        hit = place[target, None]
        column = hit.clamp_min(0)
        kept = logits.gather(1, column).masked_fill_(hit >= 0, -torch.inf)
        logits.scatter_(1, column, kept)
        p, p_true, z, nats = fused(exponentials)(logits, offset, true)
        total += nats
        # The rows are divided by z where they are narrow: in h and in dh.
        scale = 1 / (z * n)
        d_true = p_true * scale - 1 / n
        h_scaled = (h_c * scale[:, None]).to(dtype)
        dh[chunk] = matmul(p, w).float() * scale[:, None]
        dh[chunk] += d_true[:, None] * w_true
        d_w += matmul(p.t(), h_scaled)
        d_offset += (scale.to(dtype)[None] @ p)[0]
        torch.mul(d_true[:, None], h_c, out=d_target[chunk])
        d_bias.index_add_(0, target, d_true)
    d_bias.index_add_(0, ids, d_offset)
    d_weight = torch.zeros_like(weight).index_add_(0, ids, d_w)
    return total / n, dh, d_weight.index_add_(0, targets, d_target), d_bias


def exponentials(
    logits: Tensor, offset: Tensor, true: Tensor
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unnormalized probabilities of a chunk.

    logits (Floats2d): Without their offset, (n, S), in the dtype of the products.
    offset (Floats1d): (S,). true (Floats1d): The target's logit, (n,).
    RETURNS (Tuple[Floats2d, Floats1d, Floats1d, Floats0d]): exp of the logits over
        that of the highest, the same of the target, their sum z, and the chunk's
        negative log likelihood in nats.
    """
    shifted = logits.float() + offset
    highest = torch.maximum(shifted.amax(1), true)
    p = torch.exp(shifted - highest[:, None])
    p_true = torch.exp(true - highest)
    z = p.sum(1) + p_true
    return p.to(logits.dtype), p_true, z, (z.log() + highest - true).sum()


def _token_chunks(h: Tensor, n_words: int) -> List[slice]:
    """Slices of the tokens whose logits for `n_words` words are in memory at once."""
    size = max(1, MAX_LOGITS_OF_GPU // n_words)
    if h.device.type == "cpu":
        size = max(1, min(LOSS_TOKENS, MAX_LOGITS // n_words))
    return [slice(i, i + size) for i in range(0, len(h), size)]
