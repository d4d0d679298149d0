"""What holds for any text, by Hypothesis."""

import numpy as np
import pytest
import spacy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc

# spaCy refuses a lone surrogate before we could; a token has one character or more.
CHARACTERS = st.characters(exclude_categories=["Cs"])
WORDS = st.one_of(
    st.text(CHARACTERS, min_size=1, max_size=60),
    st.sampled_from(["play", "\n", " ", "<S>", "</S>", "\x00", "\u200b", "e\u0301"]),
    st.integers(1, 3000).map(lambda n: "\U0001f3ad" * n),
)
SEGMENTED = st.tuples(WORDS, st.sampled_from([True, False]))
TEXTS = st.lists(st.lists(SEGMENTED, max_size=25), min_size=1, max_size=6)
ANY = settings(max_examples=20, deadline=None, database=None)


@pytest.fixture(scope="module", params=[1, 40])
def nlp(request, bilm_config):
    nlp = spacy.blank("xx")
    config = {**bilm_config(), "max_batch_tokens": request.param, "cache_mb": 1}
    nlp.add_pipe("elmo", config={"model": config})
    return nlp


def make_doc(nlp, tokens, annotated):
    words = [word for word, _ in tokens]
    starts = [is_start for _, is_start in tokens] if annotated else None
    return Doc(nlp.vocab, words=words, sent_starts=starts)


@ANY
@given(texts=TEXTS, annotated=st.booleans(), batch_size=st.integers(1, 7))
@example(
    texts=[[("a", False)] * 600, [("b", True)] * 100], annotated=True, batch_size=2
)
def test_any_text_in_any_batch_has_finite_vectors_of_its_own(
    nlp, texts, annotated, batch_size
):
    docs = [make_doc(nlp, text, annotated) for text in texts]
    for doc in nlp.pipe(docs, batch_size=batch_size):
        assert doc._.elmo.shape == (len(doc), 3, 12)
        assert np.isfinite(doc._.elmo).all()
        spaces = [token.is_space for token in doc]
        assert not doc._.elmo[spaces].any()
    for doc, text in zip(docs, texts):
        alone = nlp(make_doc(nlp, text, annotated))._.elmo
        np.testing.assert_allclose(doc._.elmo, alone, rtol=1e-4, atol=1e-5)


@ANY
@given(tokens=st.lists(WORDS, min_size=1, max_size=30), data=st.data())
def test_a_sentence_has_the_same_vectors_in_any_company(nlp, tokens, data):
    cuts = st.lists(st.integers(1, len(tokens)), max_size=4)
    edges = sorted({0, *data.draw(cuts), len(tokens)})
    starts = [i in edges for i in range(len(tokens))]
    whole = nlp(Doc(nlp.vocab, words=tokens, sent_starts=starts))._.elmo
    for lo, hi in zip(edges, edges[1:]):
        # Annotated, or the rule might cut it further
        starts = [i == 0 for i in range(hi - lo)]
        part = nlp(Doc(nlp.vocab, words=tokens[lo:hi], sent_starts=starts))
        np.testing.assert_allclose(whole[lo:hi], part._.elmo, rtol=1e-4, atol=1e-5)
