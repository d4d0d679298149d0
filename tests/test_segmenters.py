import pickle

import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_elmo.segmenters import (
    punctuation_starts,
    segment_docs,
    segment_sentences,
)

NLP = spacy.blank("en")
SEGMENTERS = [segment_sentences(), segment_docs(), segment_sentences(max_length=3)]

# "|" stands where the rule cuts
TEXTS = {
    "two sentences": "I saw it. |You did not.",
    "no punctuation": "just a few words",
    "several marks": "What?! |Yes!!! |Go...  on? |No",
    "ellipsis first": "... wait. |Now.",
    "nothing but marks": "! ! !",
    "space around": " Hi.  |There. ",
    "straight quotes close": 'He said "Go." |Then he left.',
    "straight quotes open": 'He left. |"Go," she said.',
    "single quotes": "He said 'Go.' |Then 'No.' |'Tis so.",
    "quotes within quotes": "\"'No.'\" |\"'Go.'\" |Yes.",
    "curly quotes": "“Go.” |He left. |“No.” |‘Yes.’ |So.",
    "brackets close": "(It rained.) |We left [sic.] |Yes.",
    "brackets open": "We left. |(It rained.)",
    "quote in brackets": 'We left ("Go.") |(He said "Go.")',
    "quote after two spaces": 'He left.  |"Go," she said.',
    "quote after a line break": 'He left.\n|"Go," she said.',
    "item after a line break": "We need:\n- bread.\n|- milk.",
    "line break": "One line\nanother line",
    "blank line": "A heading\n\n|A line. \n\n|Another\n \n|one",
    "blank lines at the ends": "\n\n|A line.\n\n",
    "abbreviations": "Dr. Smith of Acme Inc. met Mr. Lee. |They ate.",
    # The full stop is part of the token: the rule does not see it
    "abbreviation at the end": "We met at 5 p.m. They ate.",
    "numbers": "3.14 is pi. |2.71 is e.",
}


def segments(segmenter, doc):
    return [span.text_with_ws for span in segmenter(doc)]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_rule_cuts_after_terminal_punctuation_and_what_closes_it(text):
    doc = NLP(text.replace("|", ""))
    assert segments(segment_sentences(), doc) == text.split("|")
    assert segments(segment_docs(), doc) == [doc.text]


@pytest.mark.parametrize(
    "words, spaces, wanted",
    [
        # Which way a straight quote looks is told by those before it.
        ('Go . " Then ( No . ) " Yes', None, ["Go . ", '" Then ( No . ) " ', "Yes "]),
        ("`` Go . '' `` No . ''", None, ["`` Go . '' ", "`` No . '' "]),
        ("日本 。 東京 。", [False] * 4, ["日本。", "東京。"]),
    ],
)
def test_the_rule_reads_docs_made_of_words(words, spaces, wanted):
    doc = Doc(NLP.vocab, words=words.split(), spaces=spaces)
    assert segments(segment_sentences(), doc) == wanted


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_vocab_that_knows_no_words_cuts_alike(text):
    doc = NLP(text.replace("|", ""))
    words, spaces = zip(*((t.text, bool(t.whitespace_)) for t in doc))
    bare = Doc(Vocab(), words=words, spaces=spaces)
    assert punctuation_starts(bare) == punctuation_starts(doc)


@pytest.mark.parametrize("mark", ["!", ")", '"'])
def test_a_long_run_of_marks_is_read_once(mark):
    # As many looks at each mark as there are marks would take a quarter of an hour
    doc = Doc(NLP.vocab, words=["!"] + [mark] * 50_000 + ["on"])
    assert punctuation_starts(doc)[-1] == (50_001 if mark != '"' else 1)


@pytest.mark.parametrize(
    "starts",
    [[1, 0, 0, 1, 0, 0], [1, -1, -1, -1, 1, -1], [True, None, None, True, None, None]],
)
def test_annotated_boundaries_come_before_the_rule(starts):
    words = ["No", ".", "Not", "here", ".", "Yes"]
    doc = Doc(NLP.vocab, words=words)
    for token, start in zip(doc, starts):
        token.is_sent_start = None if start is None else start > 0
    found = [(span.start, span.end) for span in segment_sentences()(doc)]
    assert found == [(span.start, span.end) for span in doc.sents]
    assert len(found) == 2
    assert len(segment_docs()(doc)) == 1


@pytest.mark.parametrize(
    "segment, wanted",
    [(segment_sentences, [4, 1, 4, 4, 2]), (segment_docs, [4, 4, 4, 3])],
)
def test_segments_are_cut_at_max_length(segment, wanted):
    doc = Doc(NLP.vocab, words=["a"] * 4 + ["."] + ["b"] * 10)
    assert [len(span) for span in segment(max_length=4)(doc)] == wanted
    assert [len(span) for span in segment(max_length=1)(doc)] == [1] * len(doc)


@pytest.mark.parametrize("segment", [segment_sentences, segment_docs])
@pytest.mark.parametrize("max_length", [0, -1, "256"])
def test_max_length_must_be_positive(segment, max_length):
    with pytest.raises(ValueError, match=f"ELMO038.*max_length.*{max_length}"):
        segment(max_length=max_length)


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@pytest.mark.parametrize("text", ["", "word", ".", "\n\n", '"'])
def test_empty_and_one_token_docs_are_one_segment_at_most(segmenter, text):
    doc = NLP(text)
    assert segments(segmenter, doc) == [text] * len(doc)


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@settings(max_examples=50, deadline=None)
@given(
    text=st.text(alphabet=st.sampled_from("ab. !?\n\"'()“”…。é\t")),
    starts=st.sets(st.integers(0, 30)),
)
def test_each_token_is_covered_once_and_the_doc_is_left_unchanged(
    segmenter, text, starts
):
    doc = NLP.make_doc(text)
    for i in starts & set(range(len(doc))):
        doc[i].is_sent_start = True
    before = doc.to_bytes()
    spans = list(segmenter(doc))
    assert [i for span in spans for i in range(span.start, span.end)] == list(
        range(len(doc))
    )
    assert doc.to_bytes() == before


@pytest.mark.parametrize("segmenter", SEGMENTERS)
def test_segmenters_can_be_pickled(segmenter):
    doc = NLP('A very long line of words. "Yes." No')
    copied = pickle.loads(pickle.dumps(segmenter))
    assert segments(copied, doc) == segments(segmenter, doc)


@pytest.mark.parametrize(
    "lang, sentences",
    [
        ("el", ["Ποιος είναι;", "Εγώ είμαι."]),  # a question mark, in Greek
        ("grc", ["Τίς εἶ;", "Ἐγώ εἰμι."]),
        ("en", ["He came; she left.", "Why?"]),
        ("hi", ["यह एक है।", "वह दो है।"]),
        ("am", ["ሰላም ነው።", "ደህና ነኝ።"]),
        ("ur", ["یہ ایک ہے۔", "کیا؟"]),
        ("zh", ["我来了。", "你呢？", "好！"]),
    ],
)
def test_the_marks_of_a_script_end_sentences(lang, sentences):
    doc = spacy.blank(lang).make_doc(" ".join(sentences))
    assert [span.text for span in segment_sentences()(doc)] == sentences
