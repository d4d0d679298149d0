from typing import Callable, Iterable, List

from spacy.attrs import ORTH
from spacy.pipeline import Sentencizer
from spacy.strings import get_string_id
from spacy.tokens import Doc, Span
from spacy.util import registry

from ..errors import Errors

Segmenter = Callable[[Doc], Iterable[Span]]

# No sentence of English is longer; what is cut here is a list or a table.
MAX_LENGTH = 256


@registry.misc("spacy_elmo.segment_sentences.v1")
def segment_sentences(max_length: int = MAX_LENGTH) -> Segmenter:
    """Segment a Doc by its sentence boundaries where it has them, else by a rule on
    punctuation, so that ELMo can be the first component of a pipeline. The rule
    leaves the Doc as it is.

    max_length (int): Cut after so many tokens in any case.
    RETURNS (Callable[[Doc], List[Span]]): Covers each token once and in order.
    """
    return SentenceSegmenter(max_length, split=True)


@registry.misc("spacy_elmo.segment_docs.v1")
def segment_docs(max_length: int = MAX_LENGTH) -> Segmenter:
    """Take a Doc as one segment, cut only after `max_length` tokens.

    max_length (int): Cut after so many tokens.
    RETURNS (Callable[[Doc], List[Span]]): Covers each token once and in order.
    """
    return SentenceSegmenter(max_length, split=False)


class SentenceSegmenter:
    """A class and not a closure, so that pipelines can be pickled."""

    def __init__(self, max_length: int, split: bool):
        if max_length < 1:
            raise ValueError(
                Errors.E038.format(name="max_length", wanted=">= 1", found=max_length)
            )
        self.max_length = max_length
        self.split = split

    def __call__(self, doc: Doc) -> List[Span]:
        starts: List[int] = [0]
        if self.split and len(doc) > 1:
            # A Doc of one token always claims to have boundaries.
            if doc.has_annotation("SENT_START"):
                starts = [sent.start for sent in doc.sents]
            else:
                starts = punctuation_starts(doc)
        spans = []
        for start, end in zip(starts, [*starts[1:], len(doc)]):
            for cut in range(start, end, self.max_length):
                spans.append(doc[cut : min(cut + self.max_length, end)])
        return spans


_TERMINAL = {get_string_id(char) for char in Sentencizer.default_punct_chars}


def punctuation_starts(doc: Doc) -> List[int]:
    """Where sentences begin by the rule of spaCy's `sentencizer`: after terminal
    punctuation and what closes behind it (quotes, brackets). Unlike there, an
    opening quote or bracket belongs to what follows, and a blank line ends a
    sentence.
    """
    starts = [0]
    orths = doc.to_array(ORTH).tolist()
    for i in [i + 1 for i, orth in enumerate(orths) if orth in _TERMINAL]:
        while i < len(doc) and _closes(doc, i, starts[-1]):
            i += 1
        if starts[-1] < i < len(doc):
            starts.append(i)
    blank = [t.i + 1 for t in doc if t.is_space and t.text.count("\n") > 1]
    if blank:
        starts = sorted({*starts, *(i for i in blank if i < len(doc))})
    return starts


def _closes(doc: Doc, i: int, start: int) -> bool:
    """Whether a token behind terminal punctuation still belongs to the sentence that
    began at `start`.
    """
    token = doc[i]
    if token.is_space:
        return True
    # Straight quotes are both left and right.
    if not token.is_punct or (token.is_left_punct and not token.is_right_punct):
        return False
    if not token.is_left_punct or not doc[i - 1].whitespace_:
        return True
    if not token.whitespace_:
        # It hangs on the word after it, and not on what is before.
        return False
    # A Doc made of words alone has spaces on both sides of a straight quote: it closes
    # if one was opened.
    n_before = sum(t.orth == token.orth for t in doc[start:i])
    return n_before % 2 == 1
