"""Semantic roles of a given predicate: a deep BiLSTM over [x; predicate indicator], BIO
tags, Viterbi under the constraints of BIO (He et al. 2017).
"""

from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

import torch
from spacy import registry
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc
from spacy.training import Example
from tags import constraints, spans_of, with_both_prefixes
from task import HighwayBiLSTM, Net, Task, Tok2Vec, TorchTask, given, pad
from thinc.api import Model
from torch import nn


@registry.architectures("experiments.Roles.v1")
def build_roles(
    embed: Tok2Vec,
    output: Optional[Tok2Vec] = None,
    hidden: int = 200,
    depth: int = 2,
    dropout: float = 0.2,
    indicator: int = 32,
) -> Model[Any, Any]:
    return TorchTask(Roles(hidden, depth, dropout, indicator), embed, output)


class Roles(Net):
    def __init__(self, hidden: int, depth: int, dropout: float, indicator: int):
        super().__init__()
        self.shape = (hidden, depth, dropout)
        self.indicator = nn.Embedding(2, indicator)

    def build(self, width: int, output_width: int, labels: List[str]) -> None:
        hidden = self.shape[0]
        width += self.indicator.embedding_dim
        self.encoder = HighwayBiLSTM(width, *self.shape)
        self.scores = nn.Linear(2 * hidden + output_width, len(labels))
        self.bio = constraints(labels)
        self.labels = {label: i for i, label in enumerate(labels)}

    def forward(self, xs: Any, outs: Any, docs: Any, golds: Any = None) -> Any:
        # A row for each predicate of each sentence
        rows = [(d, i) for d, doc in enumerate(docs) for i in given(doc)]
        if not rows:
            return sum(x.sum() * 0 for x in xs) if golds else [[] for _ in docs]
        x, lengths, mask = pad([xs[d] for d, _ in rows])
        marks = torch.zeros(x.shape[:2], dtype=torch.long)
        marks[range(len(rows)), [i for _, i in rows]] = 1
        h = self.encoder(torch.cat([x, self.indicator(marks)], dim=2), lengths)
        if outs is not None:
            h = torch.cat([h, pad([outs[d] for d, _ in rows])[0]], dim=2)
        scores = self.scores(h)
        if golds is not None:
            tags = [
                torch.tensor([self.labels[tag] for tag in row])
                for gold in golds
                for row in gold.user_data["gold"]
            ]
            return nn.functional.cross_entropy(scores[mask], torch.cat(tags))
        found = iter(self.bio.decode(scores, mask))
        return [[next(found) for _ in given(doc)] for doc in docs]


@Language.factory("roles")
def make_roles(nlp: Language, name: str, model: Model[Any, Any]) -> "RolesComponent":
    return RolesComponent(nlp.vocab, model, name)


class RolesComponent(Task):
    """Tags of each predicate in doc.user_data["found"], as "gold" has them."""

    def find_labels(self, golds: Iterable[Doc]) -> Set[str]:
        tags = {t for doc in golds for row in doc.user_data["gold"] for t in row}
        return with_both_prefixes(tags)

    def annotate(self, doc: Doc, found: List[List[int]]) -> None:
        doc.user_data["found"] = [[self.labels[i] for i in row] for row in found]

    def score(self, examples: Iterable[Example], **_: Any) -> Dict[str, float]:
        """F of the arguments as CoNLL-2005 counts them, of all predicates (roles_f) and
        of the verbs (verbs_f).
        """
        every, verbs = PRFScore(), PRFScore()
        for eg in examples:
            gold = eg.reference.user_data["gold"]
            rows = zip(eg.predicted.user_data["given"], gold)
            for (i, tags), found in zip(rows, eg.predicted.user_data["found"]):
                is_verb = eg.reference[i].tag_.startswith("V")
                for prf in [every, verbs] if is_verb else [every]:
                    prf.score_set(arguments(found), arguments(tags))
        return {"roles_f": every.fscore, "verbs_f": verbs.fscore}


def arguments(tags: List[str]) -> Set[Tuple[str, Tuple[Tuple[int, int], ...]]]:
    """Role and spans of each argument: C-X goes on with the last X before it. The
    predicate's own V counts for nothing.
    """
    found: List[Tuple[str, List[Tuple[int, int]]]] = []
    for start, end, role in spans_of(tags):
        whole = role[2:] if role.startswith("C-") else ""
        before = [spans for name, spans in found if name == whole]
        if before:
            before[-1].append((start, end))
        else:
            found.append((role, [(start, end)]))
    return {(role, tuple(spans)) for role, spans in found if role not in ("V", "C-V")}
