import pytest

from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.config import VocabularySettings
from spacy_elmo.pretraining.vocabulary import (
    SPECIAL,
    rank_words,
    read_vocabulary,
    write_vocabulary,
)

COUNTS = {"b": 2, "a": 2, "z": 5, "<UNK>": 9, "once": 1}


def test_special_words_come_first_then_falling_frequency():
    words, size = rank_words(COUNTS, VocabularySettings(min_count=1))
    assert words == [*SPECIAL, "z", "a", "b", "once"] and size == 7


def test_a_given_vocabulary_keeps_its_order():
    given = [*SPECIAL, "once", "unseen"]
    assert rank_words(COUNTS, given) == ([*given, "z", "a", "b"], 5)


@pytest.mark.parametrize(
    "min_count, max_size, size", [(1, 99, 7), (2, 99, 6), (5, 99, 4), (1, 5, 5)]
)
def test_rare_words_are_left_to_unknown(min_count, max_size, size):
    limits = VocabularySettings(min_count=min_count, max_size=max_size)
    assert rank_words(COUNTS, limits)[1] == size


def test_what_is_written_reads_back(tmp_path):
    words = [*SPECIAL, "a", "\u00e9t\u00e9", "a\u2028b", "\x85"]
    write_vocabulary(tmp_path / "vocab.txt", words)
    assert read_vocabulary(tmp_path / "vocab.txt") == words


def test_the_mark_that_ends_official_files_is_no_word(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\r\n</S>\r\n<UNK>\r\nthe\r\n!!!MAXTERMID\r\n")
    assert read_vocabulary(path) == [*SPECIAL, "the"]
    # A word of a text that stands elsewhere is a word.
    path.write_text("<S>\n</S>\n<UNK>\n!!!MAXTERMID\nthe\n")
    assert read_vocabulary(path) == [*SPECIAL, "!!!MAXTERMID", "the"]


@pytest.mark.parametrize(
    "content, problem",
    [
        (b"</S>\n<S>\n<UNK>\na\n", "must begin with"),
        (b"", "must begin with"),
        (b"<S>\n</S>\n<UNK>\na\nb\na\n", "'a'"),
        (b"<S>\n</S>\n<UNK>\na\n\nb\n", "line 5 is empty"),
        (b"<S>\n</S>\n<UNK>\n\xff\xfe\n", "not a readable"),
        (None, "not a readable"),
    ],
)
def test_a_bad_vocabulary_is_an_error_that_names_it(tmp_path, content, problem):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=rf"vocab\.txt: .*{problem}"):
        read_vocabulary(path)
