from typing import List, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .characters import PADDING
from .options import N_CHARACTERS, CharCNNOptions

# Words go through the convolutions in groups of like length: the lengths at which a
# group ends, and the words in a block, which bounds the memory of the responses.
LENGTHS = (3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 26, 34)
BLOCK_WORDS = 256


class CharacterEncoder(nn.Module):
    """The context-insensitive token representation: character embeddings,
    convolutions, max-pooling, highway layers and a projection (Peters et al. 2018,
    section 3.4; Kim et al. 2015).

    The reference convolves the fixed window of `max_characters_per_token`
    characters and pools over all of it, padding included. Windows over nothing but
    padding all respond alike, so they are computed once and not for each word.

    options (CharCNNOptions): The geometry.
    width (int): Width of the projection.
    """

    def __init__(self, options: CharCNNOptions, width: int):
        super().__init__()
        n, d = options.n_filters, options.embedding_dim
        self.options = options
        self.widest = max(w for w, _ in options.filters)
        self.char_embed = nn.Parameter(torch.empty(N_CHARACTERS, d))
        self.conv_weight = nn.ParameterList(
            torch.empty(n_w, d, w) for w, n_w in options.filters
        )
        self.conv_bias = nn.ParameterList(
            torch.empty(n_w) for _, n_w in options.filters
        )
        self.highways = nn.ModuleList(Highway(n) for _ in range(options.n_highway))
        # bilm-tf has no projection where there is nothing to reduce.
        self.projection = nn.Linear(n, width) if n != width else None

    def forward(self, char_ids: Tensor) -> Tensor:
        """Encode words, each by itself.

        char_ids (Ints2d): Ids 0..260, shape (n_words, max_characters_per_token).
        RETURNS (Floats2d): Shape (n_words, projection).
        """
        pooled = self.convolve(char_ids)  # (n_words, n_filters)
        for highway in self.highways:
            pooled = highway(pooled)
        return pooled if self.projection is None else self.projection(pooled)

    def convolve(self, char_ids: Tensor) -> Tensor:
        lengths = (char_ids != PADDING).sum(1)
        order = torch.argsort(lengths, stable=True)
        blocks = [
            self._convolve_block(char_ids[rows], longest)
            for rows, longest in _length_groups(lengths[order], order)
        ]
        if not blocks:
            return self.char_embed.new_empty(0, self.options.n_filters)
        restore = torch.empty_like(order)
        restore[order] = torch.arange(len(order), device=order.device)
        return torch.cat(blocks)[restore]

    def _convolve_block(self, char_ids: Tensor, longest: int) -> Tensor:
        """Convolve and pool words of at most `longest` characters, marks included."""
        window, widest = self.options.max_characters_per_token, self.widest
        if longest + widest > window:
            pooled = self._convolve_window(char_ids)
        else:
            # The windows that begin on a character, and one of pure padding, which
            # every such word has. All filters are one matrix product over windows of
            # the widest; narrower ones end in zeros.
            n = len(char_ids)
            seen = char_ids[:, : longest + widest - 1].long()
            embedded = F.embedding(seen, self.char_embed)  # (n, seen, d)
            windows = torch.cat(
                [embedded[:, k : k + longest] for k in range(widest)], dim=2
            )  # (n, longest, widest * d)
            weight = self._joined_weight()  # (widest * d, n_filters)
            padding = self.char_embed[PADDING].repeat(widest)
            response = (windows.flatten(0, 1) @ weight).view(n, longest, -1)
            pooled = torch.maximum(response.max(1).values, padding @ weight)
            pooled = pooled + torch.cat(list(self.conv_bias))
        return (
            torch.relu(pooled)
            if self.options.activation == "relu"
            else (torch.tanh(pooled))
        )

    def _convolve_window(self, char_ids: Tensor) -> Tensor:
        """The fixed window as the reference has it, for very long words."""
        embedded = F.embedding(char_ids.long(), self.char_embed).transpose(1, 2)
        pooled = [
            F.conv1d(embedded, weight, bias).amax(2)
            for weight, bias in zip(self.conv_weight, self.conv_bias)
        ]
        return torch.cat(pooled, dim=1)

    def _joined_weight(self) -> Tensor:
        """The filters side by side, shape (widest * d, n_filters)."""
        joined = [
            F.pad(weight, (0, self.widest - weight.shape[2])).permute(2, 1, 0)
            for weight in self.conv_weight
        ]  # (widest, d, n) each
        return torch.cat(joined, dim=2).flatten(0, 1)


class Highway(nn.Module):
    """y = g * relu(W_t x + b_t) + (1 - g) * x,  g = sigmoid(W_c x + b_c)
    (Srivastava et al. 2015), named as in the official files: transform and carry.
    """

    def __init__(self, width: int):
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return x + gate * (torch.relu(self.transform(x)) - x)


def _length_groups(lengths: Tensor, order: Tensor) -> List[Tuple[Tensor, int]]:
    """Cut words in order of length into blocks, each with its longest length."""
    groups: List[Tuple[Tensor, int]] = []
    sizes = lengths.tolist()
    start = 0
    while start < len(sizes):
        shortest = sizes[start]
        limit = next((n for n in LENGTHS if n >= shortest), 1 << 30)
        end = start + 1
        while end < len(sizes) and sizes[end] <= limit and end - start < BLOCK_WORDS:
            end += 1
        groups.append((order[start:end], sizes[end - 1]))
        start = end
    return groups
