"""The character convolutions in training, with a backward pass of their own."""

from typing import Any, List, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .kernels import casting, fused
from .tuning import WINDOW_MULTIPLE, at_once


def convolve_train(
    blocks: Sequence[Tensor], char_embed: Tensor, weight: Tensor, padding: Tensor
) -> Tensor:
    """The response to blocks of words: see CharacterEncoder. In autocast's precision.

    weight (Floats3d): Filters side by side, shape (width, d, n_filters).
    padding (Floats1d): What a window of pure padding gives, (n_filters,).
    """
    with casting(weight) as dtype:
        pooled: Tensor = _ConvolveAndPool.apply(  # type: ignore[no-untyped-call]
            tuple(blocks), char_embed, weight, padding, dtype
        )
    return pooled


def share_gradient(out: Tensor, response: Tensor, best: Tensor, d_best: Tensor) -> None:
    """The gradient of the maximum over axis 0, shared where several are highest.

    out, response: (longest, n, n_filters). best, d_best: (n, n_filters).
    """
    highest = response == best
    share = d_best / highest.sum(0)
    out.copy_(torch.where(highest, share, 0.0))


class _ConvolveAndPool(torch.autograd.Function):
    """The windows of all blocks are joined, so that few shapes of products occur."""

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
        size = at_once(WINDOW_MULTIPLE, weight.device)
        for rows, out in zip(windows.split(size), response.split(size)):
            torch.mm(rows, kernel, out=out)
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
        d_kernel = (windows.t() @ d_response).float()
        d_windows = torch.empty_like(windows)
        size = at_once(WINDOW_MULTIPLE, windows.device)
        for rows, out in zip(d_response.split(size), d_windows.split(size)):
            torch.mm(rows, kernel.t(), out=out)
        d_embed = d_pooled.new_zeros(ctx.n_characters, d)
        for ids, part in zip(blocks, _parts(d_windows, ctx.sizes)):
            d_ids = d_pooled.new_zeros(*ids.shape, d)
            for j in range(width):
                d_ids[j : j + len(part)] += part[:, :, j * d : (j + 1) * d]
            d_embed.index_add_(0, ids.flatten(), d_ids.flatten(0, 1))
        d_padding = (d_pooled - d_best).sum(0)
        return None, d_embed, d_kernel.view(ctx.shape), d_padding, None


def _parts(x: Tensor, sizes: List[Tuple[int, int]]) -> List[Tensor]:
    """The rows of each block, shape (longest, n, width of x)."""
    n_windows = [longest * n for longest, n in sizes]
    parts = x[: sum(n_windows)].split(n_windows)
    return [part.view(*size, -1) for part, size in zip(parts, sizes)]
