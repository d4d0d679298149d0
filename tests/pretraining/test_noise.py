import pytest

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


def test_a_sentence_of_punctuation_alone_is_left_out(make_corpus):
    corpus = make_corpus("a b\n...\n", settings={"no_punctuation": 1.0})
    assert [corpus.words[i] for i in corpus.document(0)] == ["a", "b", "</S>"]
