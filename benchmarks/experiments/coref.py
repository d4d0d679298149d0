"""Coreference: span ranking (Lee et al. 2017). Each span takes one of the spans before
it as its antecedent, or none; the loss is the marginal likelihood of all right ones.
Spans are the mentions that the Doc gives, or all spans up to a width, of which a score
of the span alone keeps the best.
"""

from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

import torch
from spacy import registry
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from task import HighwayBiLSTM, Net, Task, Tok2Vec, TorchTask, classifier, given, pad
from thinc.api import Model
from torch import Tensor, nn

Span = Tuple[int, int]
NONE = -1e4
# Distances and widths are told apart by their powers of two.
N_BUCKETS = 10


@registry.architectures("experiments.SpanRanking.v1")
def build_span_ranking(
    embed: Tok2Vec,
    output: Optional[Tok2Vec] = None,
    hidden: int = 100,
    depth: int = 1,
    dropout: float = 0.3,
    gold_mentions: bool = True,
    max_width: int = 10,
    spans_per_token: float = 0.4,
    max_antecedents: int = 100,
) -> Model[Any, Any]:
    spans = (gold_mentions, max_width, spans_per_token, max_antecedents)
    return TorchTask(SpanRanking((hidden, depth, dropout), spans), embed, output)


class SpanRanking(Net):
    def __init__(
        self, shape: Tuple[int, int, float], spans: Tuple[bool, int, float, int]
    ):
        super().__init__()
        self.shape = shape
        self.gold_mentions, self.max_width, self.per_token, self.before = spans

    def build(self, width: int, output_width: int, labels: List[str]) -> None:
        n, _, drop = self.shape
        self.encoder = HighwayBiLSTM(width, *self.shape)
        self.head = nn.Linear(2 * n + output_width, 1)
        self.widths = nn.Embedding(N_BUCKETS, 20)
        span_width = 2 * (2 * n + output_width) + width + 20
        self.mention_score = classifier(span_width, n, 1, drop)
        # A feed-forward network of [g_i; g_j; g_i * g_j; distance]. Its first layer is
        # a sum, so that g_i and g_j are multiplied once a span and not once a pair.
        # The encoder has dropped h already: here it is dropped a second time.
        self.smaller = nn.Sequential(nn.Dropout(drop), nn.Linear(span_width, n))
        self.of_i, self.of_j = nn.Linear(n, n), nn.Linear(n, n, bias=False)
        self.of_product = nn.Linear(n, n, bias=False)
        self.distances = nn.Embedding(N_BUCKETS, n)
        self.pair_score = nn.Sequential(nn.ReLU(), nn.Dropout(drop), nn.Linear(n, 1))

    def forward(self, xs: Any, outs: Any, docs: Any, golds: Any = None) -> Any:
        h = self.encode(xs, docs)
        if outs is not None:
            h = [torch.cat(pair, dim=1) for pair in zip(h, outs)]
        found = [self.rank(*each) for each in zip(xs, h, docs)]
        if golds is None:
            return [decode(spans, scores) for spans, scores in found]
        losses = [loss(*each, gold) for each, gold in zip(found, golds)]
        return sum(losses) / max(1, sum(len(spans) for spans, _ in found))

    def encode(self, xs: List[Tensor], docs: List[Doc]) -> List[Tensor]:
        """Each sentence is read on its own."""
        rows = [
            x[sent.start : sent.end] for x, doc in zip(xs, docs) for sent in doc.sents
        ]
        x, lengths, mask = pad(rows)
        return list(self.encoder(x, lengths)[mask].split([len(x) for x in xs]))

    def rank(self, x: Tensor, h: Tensor, doc: Doc) -> Tuple[List[Span], Tensor]:
        """RETURNS: The spans, and for each the scores of having no antecedent and of
        the antecedents before it, the nearest first: (n_spans, 1 + n_antecedents).
        """
        if self.gold_mentions:
            spans = [tuple(span) for span in given(doc)]
        else:
            spans = all_spans(doc, self.max_width)
        if not spans:
            return [], x.new_zeros(0, 1)
        g = self.represent(x, h, spans)
        mention = self.mention_score(g)[:, 0]
        if not self.gold_mentions:
            n_kept = min(len(spans), max(1, int(self.per_token * len(doc))))
            kept = mention.topk(n_kept).indices.sort().values
            spans, g, mention = [spans[i] for i in kept], g[kept], mention[kept]
        n = len(spans)
        offsets = torch.arange(1, min(self.before, max(1, n - 1)) + 1)
        j = torch.arange(n)[:, None] - offsets
        there, j = j >= 0, j.clamp(min=0)
        g = self.smaller(g)
        pairs = (
            self.of_i(g)[:, None] + self.of_j(g)[j] + self.distances(bucket(offsets))
        )
        pairs = pairs + self.of_product(g[:, None] * g[j])
        scores = self.pair_score(pairs)[:, :, 0]
        if not self.gold_mentions:
            scores = scores + mention[:, None] + mention[j]
        scores = scores.masked_fill(~there, NONE)
        return spans, torch.cat([scores.new_zeros(n, 1), scores], dim=1)

    def represent(self, x: Tensor, h: Tensor, spans: List[Span]) -> Tensor:
        """g = [h_start; h_end; sum_t a_t x_t; width], a: a softmax of scores."""
        start, end = torch.tensor(spans).T
        t = torch.arange(int((end - start).max())) + start[:, None]
        inside = t < end[:, None]
        t = t.clamp(max=len(x) - 1)
        a = self.head(h)[:, 0][t].masked_fill(~inside, NONE).softmax(dim=1)
        head = (a[:, None] @ x[t])[:, 0]
        return torch.cat(
            [h[start], h[end - 1], head, self.widths(bucket(end - start))], 1
        )


def all_spans(doc: Doc, max_width: int) -> List[Span]:
    return [
        (start, end)
        for sent in doc.sents
        for start in range(sent.start, sent.end)
        for end in range(start + 1, min(start + max_width, sent.end) + 1)
    ]


def bucket(n: Tensor) -> Tensor:
    """1, 2, 3-4, 5-8, ..."""
    return n.float().log2().ceil().long().clamp(max=N_BUCKETS - 1)


def loss(spans: List[Span], scores: Tensor, gold: Doc) -> Tensor:
    """-log of the probability of any right antecedent; of none, if none is there."""
    entities = {
        (start, end): i
        for i, cluster in enumerate(gold.user_data["gold"])
        for start, end in cluster
    }
    entity = torch.tensor([entities.get(span, -1 - i) for i, span in enumerate(spans)])
    j = torch.arange(len(spans))[:, None] - torch.arange(1, scores.shape[1])
    # Spans of no entity have an entity of their own.
    right = (j >= 0) & (entity[j.clamp(min=0)] == entity[:, None])
    right = torch.cat([~right.any(dim=1, keepdim=True), right], dim=1)
    marginal = scores.masked_fill(~right, NONE).logsumexp(dim=1)
    return (scores.logsumexp(dim=1) - marginal).sum()


def decode(spans: List[Span], scores: Tensor) -> List[List[Span]]:
    """Spans that chose each other, in clusters. Of one that stands alone nothing is
    known but that it was looked at.
    """
    clusters: List[List[Span]] = []
    cluster_of: Dict[int, List[Span]] = {}
    for i, choice in enumerate(scores.argmax(dim=1).tolist()):
        if choice:
            cluster = cluster_of[i - choice]
        else:
            clusters.append(cluster := [])
        cluster.append(spans[i])
        cluster_of[i] = cluster
    return clusters


@Language.factory("coref")
def make_coref(nlp: Language, name: str, model: Model[Any, Any]) -> "CorefComponent":
    return CorefComponent(nlp.vocab, model, name)


class CorefComponent(Task):
    """Clusters of spans in doc.user_data["found"], those of one span too."""

    def find_labels(self, golds: Any) -> List[str]:
        return []

    def score(self, examples: Iterable[Example], **_: Any) -> Dict[str, float]:
        """The mean of MUC, B3 and CEAF-e over the clusters of more than one mention,
        as CoNLL 2012 has it, and GAP's accuracy where the Docs are of GAP.
        """
        examples = list(examples)
        hits = [gap_is_right(eg) for eg in examples if "pronoun" in eg.y.user_data]
        if hits:
            return {"coref_gap": sum(hits) / len(hits)}
        gold, found = [], []
        for d, eg in enumerate(examples):
            gold += clusters_of(eg.reference.user_data["gold"], d)
            found += clusters_of(eg.predicted.user_data["found"], d)
        return conll(gold, found)


def clusters_of(clusters: Iterable[Iterable[Any]], d: int) -> List[Set[Any]]:
    """Mentions (document, start, end) of the clusters of more than one."""
    sets = [{(d, *span) for span in cluster} for cluster in clusters]
    return [cluster for cluster in sets if len(cluster) > 1]


def conll(gold: List[Set[Any]], found: List[Set[Any]]) -> Dict[str, float]:
    from scorch.scores import b_cubed, ceaf_e, muc

    scores = {"coref_muc": muc, "coref_b3": b_cubed, "coref_ceafe": ceaf_e}
    # Where none is shared, scorch divides by zero.
    shared = set().union(*gold) & set().union(*found)
    each = {
        name: score(gold, found)[2] if shared else 0.0 for name, score in scores.items()
    }
    return {**each, "coref_f": sum(each.values()) / 3}


def gap_is_right(eg: Example) -> bool:
    """Whether the pronoun stands with A, with B or with neither, as it should."""
    pronoun = tuple(eg.reference.user_data["pronoun"])
    of_gold, of_found = (
        next({tuple(s) for s in c} for c in clusters if pronoun in map(tuple, c))
        for clusters in (eg.y.user_data["gold"], eg.x.user_data["found"])
    )
    return of_gold == of_found
