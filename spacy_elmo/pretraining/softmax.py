import math
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .sampling import Sample

# Logits of so many tokens at a time stay in the processor's cache; with a very large
# vocabulary fewer tokens bound the memory (2**25 floats are 128 MB).
CHUNK_TOKENS = 256
MAX_LOGITS = 1 << 25


class Softmax(nn.Module):
    """The word softmax of the language model, shared by both directions.

    vocab_size (int): Words, the special ones included.
    width (int): The projection of the biLM.
    sparse (bool): Give the gradient of the sampled softmax as a sparse tensor of the
        rows that were drawn or wanted.
    """

    def __init__(self, vocab_size: int, width: int, sparse: bool = False):
        super().__init__()
        self.vocab_size = vocab_size
        self.sparse = sparse
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def initialize(self, seed: int) -> "Softmax":
        generator = torch.Generator().manual_seed(seed)
        std = 1 / math.sqrt(self.weight.shape[1])
        nn.init.normal_(self.weight, 0.0, std, generator=generator)
        nn.init.zeros_(self.bias)
        return self

    def forward(self, h: Tensor, targets: Tensor, sample: Optional[Sample]) -> Tensor:
        """The mean negative log likelihood of the targets, in nats.

        h (Floats2d): Outputs of the top layer, shape (n, width).
        targets (Ints1d): Word ids, shape (n,).
        sample (Sample): Negatives for the sampled softmax; None for the full one.
        RETURNS (Floats0d): The loss, which can be differentiated.
        """
        loss: Tensor = _SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
            h, self.weight, self.bias, targets, sample, self.sparse
        )
        return loss

    @torch.no_grad()
    def log_likelihood(self, h: Tensor, targets: Tensor) -> Tensor:
        """The exact log likelihood of each target, in nats.

        h (Floats2d): Outputs of the top layer, shape (n, width).
        targets (Ints1d): Word ids, shape (n,).
        RETURNS (Floats1d): Shape (n,).
        """
        parts: List[Tensor] = []
        for chunk in _chunks(len(targets), len(self.bias)):
            logits = torch.addmm(self.bias, h[chunk], self.weight.t())
            target = logits.gather(1, targets[chunk, None])[:, 0]
            parts.append(target - logits.logsumexp(1))
        return torch.cat(parts) if parts else h.new_empty(0)


class _SoftmaxLoss(torch.autograd.Function):
    """Forward and backward in one go, a chunk of tokens at a time: the logits of a
    whole batch never exist at once. Products run in autocast's dtype.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor,
        sample: Optional[Sample], sparse: bool,
    ) -> Tensor:  # fmt: skip
        device = h.device.type
        on = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if on else weight.dtype
        h, weight, bias = h.detach().float(), weight.detach(), bias.detach()
        with torch.autocast(device, enabled=False):
            loss, *gradients = _loss_and_gradients(
                h, weight, bias, targets, sample, dtype, sparse
            )
        ctx.gradients = gradients
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, ()  # they are changed in place
        return *(d.mul_(d_loss) for d in gradients), None, None, None


def _loss_and_gradients(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    sample: Optional[Sample],
    dtype: torch.dtype,
    sparse: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    n = len(targets)
    ids = None if sample is None else sample.ids
    w = (weight if ids is None else weight[ids]).to(dtype)  # (S, width)
    offset = bias if ids is None else bias[ids]
    position = targets
    if sample is not None:
        # Subtract the log of the expected count: the sampled softmax then estimates
        # the full one. A negative that is the target is taken out.
        offset = offset - sample.log_expected(sample.ids)
        table = torch.full_like(bias, -1, dtype=torch.int64)
        table[sample.ids] = torch.arange(len(sample.ids), device=h.device)
        position = table[targets]
    dh = torch.empty_like(h)
    d_w = torch.zeros(w.shape, device=h.device)
    d_offset = torch.zeros_like(offset)
    d_bias = torch.zeros_like(bias)
    d_target = torch.empty_like(h)  # of the row of each token's target
    total = h.new_zeros(())
    for chunk in _chunks(n, len(w)):
        h_c, target, where = h[chunk], targets[chunk], position[chunk]
        h_low = h_c.to(dtype)
        logits = h_low @ w.t()  # (chunk, S)
        rows = torch.arange(len(target), device=h.device)
        if sample is None:
            true = logits[rows, where].float() + bias[target]
        else:
            true = (h_c * weight[target]).sum(1)
            true += bias[target] - sample.log_expected(target)
            hit = where >= 0
            logits[rows[hit], where[hit]] = -torch.inf
        p, p_true, z, nats = _exponentials(logits, offset, true, sample is None)
        total += nats
        # The rows are divided by z where they are narrow: in h and in dh.
        scale = 1 / (z * n)
        d_true = torch.full_like(z, -1 / n)
        if sample is not None:
            d_true += p_true * scale
        h_scaled = (h_c * scale[:, None]).to(dtype)
        dh[chunk] = (p @ w).float() * scale[:, None]
        dh[chunk] += d_true[:, None] * weight[target]
        d_w += p.t() @ h_scaled
        d_offset += (scale.to(dtype)[None] @ p)[0]
        torch.mul(d_true[:, None], h_c, out=d_target[chunk])
        d_bias.index_add_(0, target, d_true)
    if ids is None:
        d_weight = d_w.index_add_(0, targets, d_target)
        return total / n, dh, d_weight, d_bias.add_(d_offset)
    d_bias.index_add_(0, ids, d_offset)
    all_ids, rows = torch.cat([ids, targets]), torch.cat([d_w, d_target])
    if sparse:
        d_weight = sparse_rows(all_ids, rows, weight)
    else:
        d_weight = torch.zeros_like(weight).index_add_(0, all_ids, rows)
    return total / n, dh, d_weight, d_bias


def sparse_rows(ids: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """A sparse tensor with the shape of `like`: rows of one id are added up."""
    shape = like.shape
    found = torch.sparse_coo_tensor(ids[None], rows, shape, check_invariants=False)
    return found.coalesce()


def exponentials(
    logits: Tensor, offset: Tensor, true: Tensor, full: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unnormalized probabilities of a chunk.

    logits (Floats2d): Without their offset, (n, S), in the dtype of the products.
    offset (Floats1d): (S,). true (Floats1d): The target's logit, (n,).
    full (bool): The target is among the S words.
    RETURNS (Tuple[Floats2d, Floats1d, Floats1d, Floats0d]): exp of the logits over
        that of the highest, the same of the target, their sum z, and the chunk's
        negative log likelihood in nats.
    """
    shifted = logits.float() + offset
    highest = torch.maximum(shifted.amax(1), true)
    p = torch.exp(shifted - highest[:, None])
    p_true = torch.exp(true - highest)
    z = p.sum(1) if full else p.sum(1) + p_true
    return p.to(logits.dtype), p_true, z, (z.log() + highest - true).sum()


_exponentials = exponentials


def compile_softmax() -> None:
    """Fuse the pointwise part by torch.compile, for this process."""
    global _exponentials
    _exponentials = torch.compile(exponentials)


def _chunks(n_tokens: int, n_words: int) -> List[slice]:
    """Slices of the tokens whose logits for `n_words` words are in memory at once."""
    size = max(1, min(CHUNK_TOKENS, MAX_LOGITS // n_words))
    return [slice(i, i + size) for i in range(0, n_tokens, size)]
