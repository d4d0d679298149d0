from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import Any, List, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .characters import PADDING
from .kernels import casting, fused, linear, matmul
from .options import N_CHARACTERS, CharCNNOptions
from .tuning import BLOCK_WORDS, WINDOW_MULTIPLE, WORD_LENGTHS, WORD_MULTIPLE


class CharacterEncoder(nn.Module):
    """The context-insensitive token representation: character embeddings,
    convolutions, max-pooling, highway layers and a projection (Peters et al. 2018,
    section 3.4; Kim et al. 2015).

    The reference convolves a fixed number of characters, `max_characters_per_token`,
    and pools over all of it, padding included. Windows over nothing but
    padding all respond alike, so they are computed once and not for each word.

    width (int): Width of the projection.
    """

    def __init__(self, options: CharCNNOptions, width: int):
        super().__init__()
        n, d = options.n_filters, options.embedding.dim
        self.options = options
        self.widest = max(w for w, _ in options.filters)
        self.max_characters = options.max_characters_per_token
        self.char_embed = nn.Parameter(torch.empty(N_CHARACTERS, d))
        self.conv_weight, self.conv_bias = nn.ParameterList(), nn.ParameterList()
        for w, n_w in options.filters:
            self.conv_weight.append(torch.empty(n_w, d, w))
            self.conv_bias.append(torch.empty(n_w))
        self.highways = nn.ModuleList(Highway(n) for _ in range(options.n_highway))
        # bilm-tf has no projection where there is nothing to reduce.
        self.projection = nn.Linear(n, width) if n != width else None

    def forward(self, char_ids: Tensor) -> Tensor:
        """Encode words, each by itself.

        char_ids (Ints2d): Ids 0..260, shape (n_words, max_characters_per_token).
        RETURNS (Floats2d): Shape (n_words, projection).
        """
        n_characters, order = (char_ids != PADDING).sum(1).sort(stable=True)
        blocks = _blocks(char_ids[order], n_characters.tolist())
        pooled = self._convolve(blocks)[torch.argsort(order)]  # (n_words, n_filters)
        pooled = getattr(torch, self.options.activation)(pooled)  # relu or tanh
        if pooled.requires_grad:
            pooled = F.pad(pooled, (0, 0, 0, -len(char_ids) % WORD_MULTIPLE))
        for highway in self.highways:
            pooled = highway(pooled)
        if self.projection is not None:
            pooled = linear(self.projection, pooled)
        return pooled[: len(char_ids)]

    def _convolve(self, blocks: Sequence[Tuple[Tensor, int]]) -> Tensor:
        """Convolve the words of `_blocks` and pool: shape (n_words, n_filters)."""
        # Windows that begin on a character, and one of pure padding. Words that fill
        # `max_characters` have no such window: they go the reference's way. They are
        # the longest, and so the last.
        widest = self.widest
        fits = [block for block in blocks if block[1] + widest <= self.max_characters]
        bias = torch.cat(list(self.conv_bias))
        parts = [bias.new_empty(0, len(bias))]
        if fits:
            read = [ids[:, : longest + widest - 1].t().long() for ids, longest in fits]
            parts.append(self._convolve_blocks(read) + bias)
        parts += [self._convolve_whole(ids) for ids, _ in blocks[len(fits) :]]
        return torch.cat(parts)

    def _convolve_blocks(self, blocks: Sequence[Tensor]) -> Tensor:
        """Convolve words with all filters at once and take the maximum over the
        windows that begin on a character and over one of pure padding.

        blocks (Sequence[Ints2d]): Character ids of words of similar length, position by
            position, with widest - 1 paddings after the longest word of the block:
            shape (longest + widest - 1, n).
        RETURNS (Floats2d): The words of all blocks, without bias and activation; shape
            (n_words, n_filters).
        """
        embed, widest = self.char_embed, self.widest
        # Filters side by side, narrower ones ending in zeros: (widest, d, n_filters)
        padded = [F.pad(w, (0, widest - w.shape[2])) for w in self.conv_weight]
        weight = torch.cat([w.permute(2, 1, 0) for w in padded], dim=2)
        padding = weight.flatten(0, 1).t() @ embed[PADDING].repeat(widest)
        if torch.is_grad_enabled() and weight.requires_grad:
            with casting(weight) as dtype:
                return _ConvolveAndPool.apply(  # type: ignore[no-untyped-call]
                    tuple(blocks), embed, weight, padding, dtype
                )
        best = []
        for ids in blocks:
            # (longest, n, widest, d)
            windows = F.embedding(ids, embed).unfold(0, widest, 1).transpose(2, 3)
            response = matmul(windows.flatten(2).flatten(0, 1), weight.flatten(0, 1))
            best.append(response.view(*windows.shape[:2], -1).amax(0))
        return torch.maximum(torch.cat(best), padding)

    def _convolve_whole(self, char_ids: Tensor) -> Tensor:
        """All `max_characters` as the reference has them, for very long words."""
        embedded = F.embedding(char_ids.long(), self.char_embed)
        pooled = []
        # Not by F.conv1d, which has three digits less on a GPU (TF32).
        for weight, bias in zip(self.conv_weight, self.conv_bias):
            windows = embedded.unfold(1, weight.shape[2], 1)  # (n, windows, d, w)
            response = windows.flatten(2) @ weight.flatten(1).t()
            pooled.append(response.amax(1) + bias)
        return torch.cat(pooled, dim=1)


class Highway(nn.Module):
    """y = g * relu(W_t x + b_t) + (1 - g) * x,  g = sigmoid(W_c x + b_c)
    (Srivastava et al. 2015), named as in the official files: transform and carry.
    """

    def __init__(self, width: int):
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = linear(self.carry, x)
        y = linear(self.transform, x)
        if gate.requires_grad:
            return x + gate.sigmoid() * (y.relu() - x)
        return y.relu_().sub_(x).mul_(gate.sigmoid_()).add_(x)


def share_gradient(out: Tensor, response: Tensor, best: Tensor, d_best: Tensor) -> None:
    """The gradient of the maximum over axis 0, shared where several are highest.

    out, response: (longest, n, n_filters). best, d_best: (n, n_filters).
    """
    highest = response == best
    share = d_best / highest.sum(0)
    out.copy_(torch.where(highest, share, 0.0))


class _ConvolveAndPool(torch.autograd.Function):
    """The response to blocks of words, in autocast's precision: see CharacterEncoder.
    The windows of all blocks are joined, so that few shapes of products occur.

    weight (Floats3d): Filters side by side, shape (width, d, n_filters).
    padding (Floats1d): What a window of pure padding gives, (n_filters,).
    """

    @staticmethod
    def forward(
        ctx: Any, blocks: Tuple[Tensor, ...], char_embed: Tensor, weight: Tensor,
        padding: Tensor, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        width, d, n_filters = weight.shape
        sizes = [(ids.shape[0] - width + 1, ids.shape[1]) for ids in blocks]
        n_windows = sum(longest * n for longest, n in sizes)
        n_padded = -(-n_windows // WINDOW_MULTIPLE) * WINDOW_MULTIPLE
        embed = char_embed.to(dtype)
        windows = embed.new_empty(n_padded, width * d)
        windows[n_windows:] = 0.0
        for ids, part in zip(blocks, _parts(windows, sizes)):
            embedded = F.embedding(ids, embed).unfold(0, width, 1)
            part.unflatten(2, (width, d)).copy_(embedded.transpose(2, 3))
        kernel = weight.reshape(width * d, n_filters).to(dtype)
        response = embed.new_empty(n_padded, n_filters)
        size = _at_once(WINDOW_MULTIPLE, weight)
        for rows, out in zip(windows.split(size), response.split(size)):
            matmul(rows, kernel, out=out)
        best = torch.cat([part.amax(0) for part in _parts(response, sizes)])
        ctx.save_for_backward(windows, kernel, padding, response, best, *blocks)
        ctx.sizes, ctx.shape, ctx.n_characters = sizes, weight.shape, len(embed)
        return torch.maximum(best.float(), padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_pooled: Tensor) -> Any:
        windows, kernel, padding, response, best, *blocks = ctx.saved_tensors
        width, d, _ = ctx.shape
        d_best = d_pooled.masked_fill(padding > best, 0.0)
        d_response = torch.empty_like(response)
        d_response[sum(longest * n for longest, n in ctx.sizes) :] = 0.0
        n_words = [n for _, n in ctx.sizes]
        for block in zip(
            _parts(d_response, ctx.sizes), _parts(response, ctx.sizes),
            best.split(n_words), d_best.split(n_words),
        ):  # fmt: skip
            fused(share_gradient, dynamic=True)(*block)
        d_kernel = matmul(windows.t(), d_response).float()
        d_windows = torch.empty_like(windows)
        size = _at_once(WINDOW_MULTIPLE, windows)
        for rows, out in zip(d_response.split(size), d_windows.split(size)):
            matmul(rows, kernel.t(), out=out)
        d_embed = d_pooled.new_zeros(ctx.n_characters, d)
        for ids, part in zip(blocks, _parts(d_windows, ctx.sizes)):
            d_ids = d_pooled.new_zeros(*ids.shape, d)
            for j in range(width):
                d_ids[j : j + len(part)] += part[:, :, j * d : (j + 1) * d]
            d_embed.index_add_(0, ids.flatten(), d_ids.flatten(0, 1))
        d_padding = (d_pooled - d_best).sum(0)
        return None, d_embed, d_kernel.view(ctx.shape), d_padding, None


def _blocks(char_ids: Tensor, lengths: Sequence[int]) -> List[Tuple[Tensor, int]]:
    """Cut words into blocks of similar length, each with its longest length.

    char_ids (Ints2d): The words, the shortest first.
    lengths (Sequence[int]): Characters of each word, marks included.
    """
    sizes = Counter(bisect_left(WORD_LENGTHS, n) for n in lengths)
    groups = char_ids.split(list(sizes.values()))
    most = _at_once(BLOCK_WORDS, char_ids)
    blocks = [block for group in groups for block in group.split(most)]
    ends = accumulate(map(len, blocks))
    return [(ids, lengths[end - 1]) for ids, end in zip(blocks, ends)]


def _at_once(size: int, x: Tensor) -> int:
    """How many words or windows run through a convolution together: a GPU takes all."""
    return size if x.is_cpu else 1 << 40


def _parts(x: Tensor, sizes: List[Tuple[int, int]]) -> List[Tensor]:
    """The rows of each block, shape (longest, n, width of x)."""
    n_windows = [longest * n for longest, n in sizes]
    parts = x[: sum(n_windows)].split(n_windows)
    return [part.view(*size, -1) for part, size in zip(parts, sizes)]
