import math
from typing import Optional, Sequence

import torch
from torch import Tensor, nn

from .sampling import Sample

# By which the vectors of each cluster are narrower than those of the one before.
DIVISOR = 2.0
# Tokens whose likelihood is computed at a time.
CHUNK_TOKENS = 4096


class AdaptiveSoftmax(nn.Module):
    """The adaptive softmax (Grave et al. 2017) of the language model, shared by both
    directions: frequent words stand in a short list, and the others in clusters whose
    vectors are the narrower the rarer the words are. Exact, without negatives.

    vocab_size (int): Words, the special ones included, by falling frequency.
    width (int): The projection of the biLM.
    cutoffs (Sequence[int]): Where clusters begin.
    """

    def __init__(self, vocab_size: int, width: int, cutoffs: Sequence[int]):
        super().__init__()
        self.vocab_size = vocab_size
        self.cutoffs = [n for n in cutoffs if n < vocab_size]
        # torch wants at least one cluster, and words in it.
        self.words = nn.AdaptiveLogSoftmaxWithLoss(
            width, vocab_size, self.cutoffs or [vocab_size - 1], DIVISOR, head_bias=True
        )

    def initialize(self, seed: int) -> "AdaptiveSoftmax":
        generator = torch.Generator().manual_seed(seed)
        for param in self.parameters():
            if param.dim() > 1:
                std = 1 / math.sqrt(param.shape[1])
                nn.init.normal_(param, 0.0, std, generator=generator)
            else:
                nn.init.zeros_(param)
        return self

    def forward(
        self, h: Tensor, targets: Tensor, sample: Optional[Sample] = None
    ) -> Tensor:
        """The mean negative log likelihood of the targets, in nats. Arguments as in
        Softmax; there are no negatives.
        """
        loss: Tensor = self.words(h, targets).loss
        return loss

    @torch.no_grad()
    def log_likelihood(self, h: Tensor, targets: Tensor) -> Tensor:
        """The exact log likelihood of each target, in nats. See Softmax."""
        parts = [
            self.words(h_part, part).output
            for h_part, part in zip(h.split(CHUNK_TOKENS), targets.split(CHUNK_TOKENS))
        ]
        return torch.cat(parts) if len(targets) else h.new_empty(0)
