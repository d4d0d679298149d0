"""Names: a BiLSTM-CRF (Lample et al. 2016; the paper's model for CoNLL 2003)."""

from typing import Any, Dict, Iterable, List, Optional, Set

import torch
from spacy import registry
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example
from tags import spans_of, with_both_prefixes
from task import HighwayBiLSTM, Net, Task, Tok2Vec, TorchTask, pad
from thinc.api import Model
from torch import nn
from torchcrf import CRF


@registry.architectures("experiments.Names.v1")
def build_names(
    embed: Tok2Vec,
    output: Optional[Tok2Vec] = None,
    hidden: int = 200,
    depth: int = 1,
    dropout: float = 0.5,
) -> Model[Any, Any]:
    return TorchTask(Names(hidden, depth, dropout), embed, output)


class Names(Net):
    def __init__(self, hidden: int, depth: int, dropout: float):
        super().__init__()
        self.shape = (hidden, depth, dropout)

    def build(self, width: int, output_width: int, labels: List[str]) -> None:
        self.encoder = HighwayBiLSTM(width, *self.shape)
        self.scores = nn.Linear(2 * self.shape[0] + output_width, len(labels))
        self.crf = CRF(len(labels), batch_first=True)
        self.labels = {label: i for i, label in enumerate(labels)}

    def forward(self, xs: Any, outs: Any, docs: Any, golds: Any = None) -> Any:
        x, lengths, mask = pad(xs)
        h = self.encoder(x, lengths)
        if outs is not None:
            h = torch.cat([h, pad(outs)[0]], dim=2)
        scores = self.scores(h)
        if golds is None:
            return self.crf.decode(scores, mask)
        tags = [torch.tensor([self.labels[t] for t in bio(doc)]) for doc in golds]
        return -self.crf(scores, pad(tags)[0], mask, reduction="token_mean")


def bio(doc: Doc) -> List[str]:
    return [f"{t.ent_iob_}-{t.ent_type_}" if t.ent_type_ else "O" for t in doc]


@Language.factory("names", assigns=["doc.ents"])
def make_names(nlp: Language, name: str, model: Model[Any, Any]) -> "NamesComponent":
    return NamesComponent(nlp.vocab, model, name)


class NamesComponent(Task):
    """Sets doc.ents."""

    def find_labels(self, golds: Iterable[Doc]) -> Set[str]:
        return with_both_prefixes(tag for doc in golds for tag in bio(doc))

    def annotate(self, doc: Doc, found: List[int]) -> None:
        spans = spans_of([self.labels[i] for i in found])
        doc.ents = [Span(doc, start, end, label=name) for start, end, name in spans]

    def score(self, examples: Iterable[Example], **_: Any) -> Dict[str, Any]:
        return get_ner_prf(examples)
