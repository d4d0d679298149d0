from collections import Counter
from functools import partial
from typing import Callable, Iterable, List

from spacy.attrs import ORTH
from spacy.lang.lex_attrs import is_left_punct, is_punct, is_right_punct
from spacy.pipeline import Sentencizer
from spacy.strings import get_string_id
from spacy.tokens import Doc, Span, Token
from spacy.util import registry

from .errors import require_number

Segmenter = Callable[[Doc], Iterable[Span]]

# Hardly any sentence is longer. What is cut is usually a list or a table.
MAX_LENGTH = 256


@registry.misc("spacy_elmo.segment_sentences.v1")
def segment_sentences(max_length: int = MAX_LENGTH) -> Segmenter:
    """Segment a Doc by its sentence boundaries where it has them, else by a rule on
    punctuation, so that ELMo can be the first component of a pipeline. The rule
    leaves the Doc as it is.

    max_length (int): Cut after this many tokens in any case.
    RETURNS (Callable[[Doc], List[Span]]): Covers each token once and in order.
    RAISES (ValueError): If max_length is below 1.
    """
    require_number("max_length", max_length, 1)
    # No closure, so that pipelines can be pickled.
    return partial(_segment, max_length=max_length, split=True)


@registry.misc("spacy_elmo.segment_docs.v1")
def segment_docs(max_length: int = MAX_LENGTH) -> Segmenter:
    """Take a Doc as one segment, cut only after `max_length` tokens. Arguments as of
    `segment_sentences`.
    """
    require_number("max_length", max_length, 1)
    return partial(_segment, max_length=max_length, split=False)


def _segment(doc: Doc, *, max_length: int, split: bool) -> List[Span]:
    starts: List[int] = [0]
    # A Doc of one token always claims to have boundaries.
    if split and len(doc) > 1:
        if doc.has_annotation("SENT_START"):
            starts = [sent.start for sent in doc.sents]
        else:
            starts = punctuation_starts(doc)
    return [
        doc[cut : min(cut + max_length, end)]
        for start, end in zip(starts, [*starts[1:], len(doc)])
        for cut in range(start, end, max_length)
    ]


_TERMINAL = {get_string_id(char) for char in Sentencizer.default_punct_chars}
# It looks like a semicolon, and a semicolon is what people type.
_GREEK_QUESTION = {get_string_id(char) for char in (";", "\u037e")}


def punctuation_starts(doc: Doc) -> List[int]:
    """Where sentences begin by the rule of spaCy's `sentencizer`: after terminal
    punctuation and what closes after it (quotes, brackets). Unlike there, an
    opening quote or bracket belongs to what follows, and a blank line ends a
    sentence.
    """
    terminal = _TERMINAL | _GREEK_QUESTION if doc.lang_ in ("el", "grc") else _TERMINAL
    starts = [0]
    is_over = False  # The sentence has had its terminal punctuation.
    seen: Counter[int] = Counter()  # The tokens of the sentence.
    for i, orth in enumerate(doc.to_array(ORTH).tolist()):
        if is_over and not _closes(doc[i], seen):
            starts.append(i)
            is_over = False
            seen.clear()
        is_over = is_over or orth in terminal
        seen[orth] += 1
    blank = [t.i + 1 for t in doc if t.text.isspace() and t.text.count("\n") > 1]
    return sorted({*starts, *(i for i in blank if i < len(doc))})


def _closes(token: Token, seen: Counter[int]) -> bool:
    """Whether a token after terminal punctuation still belongs to its sentence, whose
    tokens so far are counted.
    """
    # By the text: the vocab of a DocBin may know no more of a word.
    text, before = token.text, token.nbor(-1)
    if text.isspace():
        return True
    # Straight quotes are both left and right.
    opens = is_left_punct(text) and not is_right_punct(text)
    if not is_punct(text) or opens or "\n" in before.text:
        return False
    if not is_left_punct(text) or not (before.whitespace_ or before.text.isspace()):
        return True
    # Without a space, it is attached to the word after it. A Doc of words alone has
    # spaces on both sides: there, a straight quote closes if one was opened.
    return bool(token.whitespace_) and seen[token.orth] % 2 == 1
