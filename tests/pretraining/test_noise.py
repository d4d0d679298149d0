import pytest
import spacy
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_elmo.pretraining.config import CorpusSettings
from spacy_elmo.pretraining.noise import with_ascii_quotes
from spacy_elmo.pretraining.tokenizer import Tokenizer

TEXT = "\u201cSo\u2019 , said #Bob to @Ann .\n\n" * 200


@pytest.mark.parametrize(
    "name, noisy",
    [
        ("ascii_quotes", "\"So' , said #Bob to @Ann . </S>"),
        ("lower_case", "\u201cso\u2019 , said #Bob to @Ann . </S>"),
        ("no_punctuation", "\u201cSo\u2019 said #Bob to @Ann </S>"),
    ],
)
def test_a_share_of_the_documents_is_noisy(make_corpus, name, noisy):
    def read(file):
        corpus = make_corpus(TEXT, name=file, settings={name: 0.4})
        return [
            " ".join(corpus.words[i] for i in corpus.document(d))
            for d in range(corpus.n_documents)
        ]

    documents = read("first.txt")
    assert set(documents) == {noisy, TEXT.split("\n")[0] + " </S>"}
    assert 60 < documents.count(noisy) < 100
    # The same ones in each run
    assert read("second.txt") == documents


def test_docs_have_ascii_quotes_too():
    words = "\u201cSo\u201d it is".split()
    doc = Doc(Vocab(), words=[*words, "So"], sent_starts=[1, -1, -1, 1])
    settings = CorpusSettings(ascii_quotes=1.0)
    ((source, found),) = with_ascii_quotes([(3, doc)], settings)
    assert source == 3
    assert [sent.text for sent in found.sents] == ['"So" it is', "So"]


def test_docs_and_their_text_have_the_same_sentences_with_ascii_quotes():
    """Which side a straight quote belongs to, its spaces tell."""
    text = "The boys\u2019 toys. \u2018Stay,\u2019 he said. \u2018Go.\u2019 He went."
    settings = CorpusSettings(ascii_quotes=1.0)
    parts = [[text], spacy.blank("en")(text)]
    found = with_ascii_quotes(enumerate(parts), settings)
    tokenizer = Tokenizer({"lang": "en"}, settings)
    of_text, of_doc = (tokenizer(document) for _, document in found)
    assert of_doc == of_text


def test_a_sentence_of_punctuation_alone_is_left_out(make_corpus):
    corpus = make_corpus("a b\n...\n", settings={"no_punctuation": 1.0})
    assert [corpus.words[i] for i in corpus.document(0)] == ["a", "b", "</S>"]


@pytest.mark.parametrize("text", ["\u201eJa\u201c", "\u201eJa\u201d", "\u201cJa\u201d"])
def test_both_quotes_of_a_pair_become_ascii(text):
    """German, Polish and Hungarian ones open below the line."""
    settings = CorpusSettings(ascii_quotes=1.0)
    ((_, found),) = with_ascii_quotes([(0, [text, "\u201aja\u2018"])], settings)
    assert found == ['"Ja"', "'ja'"]
