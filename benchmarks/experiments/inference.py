"""Inference: ESIM (Chen et al. 2017). ELMo stands beside the input and, as in the
appendix of the paper, beside the output of the first BiLSTM.
"""

from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch
from spacy import registry
from spacy.language import Language
from spacy.training import Example
from task import (
    HighwayBiLSTM,
    Net,
    Task,
    Tok2Vec,
    TorchTask,
    classifier,
    in_two,
    locked_dropout,
    pad,
)
from thinc.api import Model
from torch import Tensor, nn


@registry.architectures("experiments.ESIM.v2")
def build_esim(
    embed: Tok2Vec,
    output: Optional[Tok2Vec] = None,
    hidden: int = 100,
    dropout: float = 0.5,
) -> Model[Any, Any]:
    return TorchTask(ESIM(hidden, dropout), embed, output)


class ESIM(Net):
    """Dropout is at the input of each LSTM and of the classifier's layers, as Peters et
    al. 2018 have it. There is none between the encoder and the alignment: a word that
    both texts have would lose other columns in each, and a - a~ and a * a~ would show
    the masks and not the words. (A listener at the output has its own, 0.2: Table 3
    has an arm without it.)
    """

    def __init__(self, hidden: int, dropout: float):
        super().__init__()
        self.hidden, self.dropout = hidden, dropout

    def build(self, width: int, output_width: int, labels: List[str]) -> None:
        n = self.hidden
        self.encoder = HighwayBiLSTM(width, n)
        self.project = nn.Sequential(
            nn.Linear(4 * (2 * n + output_width), n), nn.ReLU()
        )
        self.composition = HighwayBiLSTM(n, n)
        self.classifier = classifier(8 * n, n, len(labels), self.dropout)
        self.labels = {label: i for i, label in enumerate(labels)}

    def forward(self, xs: Any, outs: Any, docs: Any, golds: Any = None) -> Any:
        (a, b), (a_out, b_out) = in_two(xs, docs), in_two(outs or [], docs)
        a, a_lengths, a_mask = self.encode(a, a_out)
        b, b_lengths, b_mask = self.encode(b, b_out)
        a_tilde, b_tilde = align(a, b, a_mask, b_mask)
        pooled = torch.cat(
            [
                *self.compose(a, a_tilde, a_lengths, a_mask),
                *self.compose(b, b_tilde, b_lengths, b_mask),
            ],
            dim=1,
        )
        scores = self.classifier(pooled)
        if golds is None:
            return scores.argmax(dim=1).tolist()
        gold = torch.tensor([self.labels[doc.user_data["gold"]] for doc in golds])
        return nn.functional.cross_entropy(scores, gold)

    def encode(
        self, rows: List[Tensor], outs: List[Tensor]
    ) -> Tuple[Tensor, List[int], Tensor]:
        x, lengths, mask = pad(rows)
        h = self.encoder(self.drop(x), lengths)
        return torch.cat([h, pad(outs)[0]], dim=2) if outs else h, lengths, mask

    def compose(
        self, a: Tensor, a_tilde: Tensor, lengths: List[int], mask: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """Enhance by difference and product, read once more, and pool: mean and
        maximum over time, each (n, 2 * hidden).
        """
        m = torch.cat([a, a_tilde, a - a_tilde, a * a_tilde], dim=2)
        v = self.composition(self.drop(self.project(m)), lengths)
        there = mask[:, :, None]
        mean = (v * there).sum(dim=1) / there.sum(dim=1)
        return mean, v.masked_fill(~there, -1e4).amax(dim=1)

    def drop(self, x: Tensor) -> Tensor:
        return locked_dropout(x, self.dropout, self.training)


def align(
    a: Tensor, b: Tensor, a_mask: Tensor, b_mask: Tensor
) -> Tuple[Tensor, Tensor]:
    """Soft alignment: each a_i as a mean of the b_j, and each b_j of the a_i."""
    e = a @ b.transpose(1, 2)
    to_b = e.masked_fill(~b_mask[:, None], -1e4).softmax(dim=2)
    to_a = e.masked_fill(~a_mask[:, :, None], -1e4).softmax(dim=1)
    return to_b @ b, to_a.transpose(1, 2) @ a


@Language.factory("label")
def make_label(nlp: Language, name: str, model: Model[Any, Any]) -> "LabelComponent":
    return LabelComponent(nlp.vocab, model, name)


class LabelComponent(Task):
    """One label for a Doc, in doc.user_data["found"]."""

    def annotate(self, doc: Any, found: int) -> None:
        doc.user_data["found"] = self.labels[found]

    def score(self, examples: Iterable[Example], **_: Any) -> Dict[str, float]:
        hits = [
            eg.predicted.user_data["found"] == eg.reference.user_data["gold"]
            for eg in examples
        ]
        return {"label_acc": sum(hits) / max(1, len(hits))}
