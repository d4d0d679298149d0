"""Sentiment: a biattentive classification network (McCann et al. 2017), whose two
inputs are the same sentence.
"""

from typing import Any, List, Optional

import torch
from inference import align
from spacy import registry
from task import HighwayBiLSTM, Net, Tok2Vec, TorchTask, classifier, locked_dropout, pad
from thinc.api import Model
from torch import nn


@registry.architectures("experiments.BCN.v1")
def build_bcn(
    embed: Tok2Vec,
    output: Optional[Tok2Vec] = None,
    hidden: int = 100,
    dropout: float = 0.4,
) -> Model[Any, Any]:
    return TorchTask(BCN(hidden, dropout), embed, output)


class BCN(Net):
    def __init__(self, hidden: int, dropout: float):
        super().__init__()
        self.hidden, self.dropout = hidden, dropout

    def build(self, width: int, output_width: int, labels: List[str]) -> None:
        n = self.hidden
        self.reduce = nn.Sequential(nn.Linear(width, n), nn.ReLU())
        self.encoder = HighwayBiLSTM(n, n)
        self.integrator = HighwayBiLSTM(6 * n, n)
        self.attention = nn.Linear(2 * n + output_width, 1)
        self.classifier = classifier(
            4 * (2 * n + output_width), 2 * n, len(labels), self.dropout
        )
        self.labels = {label: i for i, label in enumerate(labels)}

    def forward(self, xs: Any, outs: Any, docs: Any, golds: Any = None) -> Any:
        x, lengths, mask = pad(xs)
        x = self.reduce(locked_dropout(x, self.dropout, self.training))
        x = self.encoder(x, lengths)
        c, _ = align(x, x, mask, mask)
        v = self.integrator(torch.cat([x, x - c, x * c], dim=2), lengths)
        if outs is not None:
            v = torch.cat([v, pad(outs)[0]], dim=2)
        absent = ~mask[:, :, None]
        beta = self.attention(v).masked_fill(absent, -1e4).softmax(dim=1)
        pooled = [
            v.masked_fill(absent, -1e4).amax(dim=1),
            v.masked_fill(absent, 1e4).amin(dim=1),
            v.masked_fill(absent, 0).sum(dim=1) / mask.sum(dim=1, keepdim=True),
            (beta * v).sum(dim=1),
        ]
        scores = self.classifier(torch.cat(pooled, dim=1))
        if golds is None:
            return scores.argmax(dim=1).tolist()
        gold = torch.tensor([self.labels[doc.user_data["gold"]] for doc in golds])
        return nn.functional.cross_entropy(scores, gold)
