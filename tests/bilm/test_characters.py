import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm.characters import words_to_ids

BEGIN, END, PAD = 258, 259, 260


def ids(word, **kwargs):
    return words_to_ids([word], **kwargs)[0].tolist()


def padded(*inner, width=50):
    row = [BEGIN, *inner, END]
    return row + [PAD] * (width - len(row))


@pytest.mark.parametrize(
    "word, inner",
    [
        ("", b""),
        ("play", b"play"),
        ("\x00", b"\x00"),
        ("é", b"\xc3\xa9"),
        ("😀", b"\xf0\x9f\x98\x80"),
        ("x" * 48, b"x" * 48),
        ("x" * 49, b"x" * 48),
        ("x" * 500, b"x" * 48),
        # 17 characters of three bytes: the cut may fall inside a character
        ("語" * 17, ("語" * 16).encode()),
        ("x語" * 17, ("x語" * 12).encode()),
        ("xx" + "語" * 16, ("xx" + "語" * 16).encode()[:48]),
        ("\ud800", b""),
        ("a\udfffb", b"ab"),
        ("<UNK>", b"<UNK>"),
        ("<s>", b"<s>"),
        ("<S> ", b"<S> "),
    ],
)
def test_a_word_is_its_first_48_bytes_of_utf8_between_marks(word, inner):
    assert ids(word) == padded(*inner)


def test_the_boundary_words_have_a_character_of_their_own():
    assert ids("<S>") == padded(256)
    assert ids("</S>") == padded(257)


@pytest.mark.parametrize("width", [3, 5, 12, 60])
def test_the_width_leaves_room_for_the_two_marks(width):
    assert ids("", max_characters=width) == padded(width=width)
    assert ids("<S>", max_characters=width) == padded(256, width=width)
    assert ids("abcdefgh" * 8, max_characters=width) == padded(
        *(b"abcdefgh" * 8)[: width - 2], width=width
    )


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=[]), max_size=60))
def test_any_string_has_ids(word):
    found = ids(word)
    assert len(found) == 50
    assert found[0] == BEGIN
    assert found.count(END) == 1
    end = found.index(END)
    assert set(found[end + 1 :]) <= {PAD}
    if word not in ("<S>", "</S>"):
        assert word.encode("utf8", "ignore")[:48] == bytes(found[1:end])
