import sys

import pytest
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.config import CorpusSettings
from spacy_elmo.pretraining.tokenizer import Tokenizer


def test_text_is_split_by_the_language_and_blank_words_go():
    tokenizer = Tokenizer({"lang": "en"}, CorpusSettings(max_length=4))
    sentences = tokenizer(["He can't  wait. She can.", [" ", "a\nb", "", "c"]])
    assert sentences == [
        ["He", "ca", "n't"], ["wait", "."], ["She", "can", "."], ["a b", "c"]
    ]  # fmt: skip


def test_an_unknown_language_is_an_error_of_the_config():
    with pytest.raises(CorpusError, match="no language .xyz."):
        Tokenizer({"lang": "xyz"}, CorpusSettings())(["text"])


def test_a_tokenizer_that_is_not_installed_says_what_helps(monkeypatch):
    monkeypatch.setitem(sys.modules, "natto", None)
    korean = {"lang": "ko"}
    with pytest.raises(CorpusError, match=r"ELMO136.*natto-py.*--corpus\.tokenized"):
        Tokenizer(korean, CorpusSettings())(["text"])
    tokenized = Tokenizer(korean, CorpusSettings(tokenized=True))
    assert tokenized(["나는 간다 ."]) == [["나는", "간다", "."]]


@pytest.mark.parametrize("tokenized", [True, False])
def test_docs_need_no_tokenizer(monkeypatch, tokenized):
    monkeypatch.setitem(sys.modules, "natto", None)
    doc = Doc(Vocab(), words=["나는", "간다", "."])
    tokenizer = Tokenizer({"lang": "ko"}, CorpusSettings(tokenized=tokenized))
    assert tokenizer(doc) == [["나는", "간다", "."]]


def test_a_text_that_a_tokenizer_refuses_is_named():
    """SudachiPy, of Japanese, takes no line of more than 49,149 bytes."""

    class SudachiError(Exception):
        pass

    def refuse(text):
        raise SudachiError("Input is too long")

    tokenizer = Tokenizer({"lang": "en"}, CorpusSettings())
    tokenizer.load().tokenizer = refuse
    with pytest.raises(CorpusError, match="ELMO051.*'One line.*Input is too long"):
        tokenizer(["One line."])


def test_a_line_longer_than_the_parser_allows_is_tokenized():
    line = "a" * 99 + " "
    tokenizer = Tokenizer({"lang": "en"}, CorpusSettings(max_length=10**6))
    (sentence,) = tokenizer([line * 10_300])
    assert len(sentence) == 10_300
