"""Question answering: bidirectional attention (Seo et al. 2017), then attention of
the paragraph to itself, then the start and the end of the answer (Clark and Gardner
2018). ELMo stands beside the input and, as in the paper, beside the output of the first
BiLSTM.
"""

import re
import string
from collections import Counter
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
    given,
    in_two,
    locked_dropout,
    pad,
)
from thinc.api import Model
from torch import Tensor, nn

MAX_LENGTH = 17  # of an answer, as Clark and Gardner have it
NONE = -1e4


@registry.architectures("experiments.BiDAF.v1")
def build_bidaf(
    embed: Tok2Vec,
    output: Optional[Tok2Vec] = None,
    hidden: int = 75,
    dropout: float = 0.2,
) -> Model[Any, Any]:
    return TorchTask(BiDAF(hidden, dropout), embed, output)


class BiDAF(Net):
    def __init__(self, hidden: int, dropout: float):
        super().__init__()
        self.hidden, self.dropout = hidden, dropout

    def build(self, width: int, output_width: int, labels: List[str]) -> None:
        n, drop = self.hidden, self.dropout
        both = 2 * n + output_width
        self.encoder = HighwayBiLSTM(width, n, dropout=drop)
        self.attention = Trilinear(both)
        self.merge = nn.Sequential(nn.Linear(4 * both, 2 * n), nn.ReLU())
        self.reader = HighwayBiLSTM(2 * n, n, dropout=drop)
        self.self_attention = Trilinear(2 * n)
        self.self_merge = nn.Sequential(nn.Linear(6 * n, 2 * n), nn.ReLU())
        self.start = HighwayBiLSTM(2 * n, n, dropout=drop)
        self.end = HighwayBiLSTM(4 * n, n, dropout=drop)
        self.start_score, self.end_score = nn.Linear(2 * n, 1), nn.Linear(2 * n, 1)

    def forward(self, xs: Any, outs: Any, docs: Any, golds: Any = None) -> Any:
        (question, context), outputs = in_two(xs, docs), in_two(outs or [], docs)
        q, _, q_mask = self.encode(question, outputs[0])
        c, lengths, mask = self.encode(context, outputs[1])
        scores = self.attention(c, q).masked_fill(~q_mask[:, None], NONE)
        to_question = scores.softmax(dim=2) @ q
        weights = scores.amax(dim=2).masked_fill(~mask, NONE).softmax(dim=1)
        to_context = weights[:, None] @ c
        g = self.merge(torch.cat([c, to_question, c * to_question, c * to_context], 2))
        h = self.reader(g, lengths)
        h = g + self.attend_to_itself(h, mask)
        # Here, and again at the input of `start` and `end`.
        h = locked_dropout(h, self.dropout, self.training)
        at_start = self.start(h, lengths)
        at_end = self.end(torch.cat([at_start, h], dim=2), lengths)
        start = self.start_score(at_start).squeeze(2).masked_fill(~mask, NONE)
        end = self.end_score(at_end).squeeze(2).masked_fill(~mask, NONE)
        cuts = [given(doc) for doc in docs]
        if golds is None:
            spans = best_spans(start, end)
            return [(a + cut, b + cut + 1) for (a, b), cut in zip(spans, cuts)]
        spans = [doc.user_data["gold"]["span"] for doc in golds]
        first = torch.tensor([a - cut for (a, _), cut in zip(spans, cuts)])
        last = torch.tensor([b - 1 - cut for (_, b), cut in zip(spans, cuts)])
        cross_entropy = nn.functional.cross_entropy
        return cross_entropy(start, first) + cross_entropy(end, last)

    def encode(
        self, rows: List[Tensor], outs: List[Tensor]
    ) -> Tuple[Tensor, List[int], Tensor]:
        x, lengths, mask = pad(rows)
        h = self.encoder(x, lengths)
        return torch.cat([h, pad(outs)[0]], dim=2) if outs else h, lengths, mask

    def attend_to_itself(self, h: Tensor, mask: Tensor) -> Tensor:
        scores = self.self_attention(h, h).masked_fill(~mask[:, None], NONE)
        itself = torch.eye(h.shape[1], dtype=torch.bool)
        other = scores.masked_fill(itself, NONE).softmax(dim=2) @ h
        return self.self_merge(torch.cat([h, other, h * other], dim=2))


class Trilinear(nn.Module):
    """w . [a; b; a * b] for every a_i and b_j."""

    def __init__(self, width: int):
        super().__init__()
        self.a, self.b = nn.Linear(width, 1), nn.Linear(width, 1, bias=False)
        self.product = nn.Parameter(torch.zeros(width))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        alone = self.a(a) + self.b(b).transpose(1, 2)
        return alone + (a * self.product) @ b.transpose(1, 2)


def best_spans(start: Tensor, end: Tensor) -> List[Tuple[int, int]]:
    """First and last token of the likeliest answer of each row."""
    scores = start[:, :, None] + end[:, None]
    allowed = torch.ones(scores.shape[1:], dtype=torch.bool).triu()
    allowed &= ~allowed.triu(MAX_LENGTH)
    flat = scores.masked_fill(~allowed, 4 * NONE).flatten(1).argmax(dim=1)
    return [divmod(int(i), scores.shape[2]) for i in flat]


@Language.factory("answer")
def make_answer(nlp: Language, name: str, model: Model[Any, Any]) -> "AnswerComponent":
    return AnswerComponent(nlp.vocab, model, name)


class AnswerComponent(Task):
    """Start and end of the answer in doc.user_data["found"]."""

    def find_labels(self, golds: Any) -> List[str]:
        return []

    def score(self, examples: Iterable[Example], **_: Any) -> Dict[str, float]:
        """Exact match and F1 over the words, as SQuAD's own script has them."""
        exact, f1 = [], []
        for eg in examples:
            start, end = eg.predicted.user_data["found"]
            found = eg.predicted[start:end].text
            answers = eg.reference.user_data["gold"]["answers"]
            exact.append(max(words(found) == words(answer) for answer in answers))
            f1.append(max(overlap(words(found), words(answer)) for answer in answers))
        n = max(1, len(f1))
        return {"answer_exact": sum(exact) / n, "answer_f": sum(f1) / n}


def words(text: str) -> List[str]:
    """Lower case, without punctuation and articles."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def overlap(found: List[str], answer: List[str]) -> float:
    """F1 of two bags of words."""
    common = sum((Counter(found) & Counter(answer)).values())
    return 2 * common / (len(found) + len(answer)) if common else 0.0
