"""BIO tags of spans, and a CRF that knows nothing but them."""

from typing import Iterable, Iterator, List, Set, Tuple

from torch import nn
from torchcrf import CRF

IMPOSSIBLE = -1e4


def spans_of(tags: List[str]) -> Iterator[Tuple[int, int, str]]:
    """Start, end and label of each span."""
    start, label = 0, ""
    for i, tag in enumerate([*tags, "O"]):
        if label and tag != f"I-{label}":
            yield start, i, label
            label = ""
        if tag != "O" and not label:
            start, label = i, tag[2:]


def with_both_prefixes(tags: Iterable[str]) -> Set[str]:
    """The tags that a model must know to have any span of these labels."""
    labels = {tag[2:] for tag in tags if tag != "O"}
    return {"O"} | {prefix + label for label in labels for prefix in ("B-", "I-")}


def constraints(tags: List[str]) -> CRF:
    """A CRF whose weights are the rule of BIO alone: I-X follows B-X or I-X."""
    crf = CRF(len(tags), batch_first=True).requires_grad_(False)
    for weights in crf.parameters():
        nn.init.zeros_(weights)
    for j, tag in enumerate(tags):
        if tag.startswith("I-"):
            crf.start_transitions[j] = IMPOSSIBLE
            for i, before in enumerate(tags):
                if before[2:] != tag[2:]:
                    crf.transitions[i, j] = IMPOSSIBLE
    return crf
