import lzma
import sys
from pathlib import Path

import pytest

from spacy_elmo.errors import CorpusError
from spacy_elmo.text.documents import read_documents, read_texts

TXT = "One line.\nA second.\n\n\nAnother document.\n"
DOCUMENTS = [["One line.", "A second."], ["Another document."]]


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.txt.zst"
    path.write_bytes(b"some")
    for package in ("zstandard", "backports", "compression"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CorpusError, match=r"pip install 'smart-open\[zst\]'"):
        list(read_documents(path))


def test_a_name_with_a_colon_is_no_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ch1:intro.txt").write_text("She made a play.\n")
    assert list(read_texts(Path("ch1:intro.txt"))) == ["She made a play."]


def test_truncated_archive_is_an_error_and_not_a_short_corpus(tmp_path):
    path = tmp_path / "a.txt.xz"
    path.write_bytes(lzma.compress(TXT.encode())[:-20])
    with pytest.raises(CorpusError, match="a.txt.xz"):
        list(read_documents(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_an_empty_archive_is_an_error_too(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.touch()
    with pytest.raises(CorpusError, match="a.txt.* is "):
        list(read_documents(path))


def test_lines_that_end_as_none_do_today_are_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"One line.\rAnother.\r\rA document.")
    with pytest.raises(CorpusError, match=r"lines that end in \\r alone"):
        list(read_documents(path))


def test_lines_that_are_not_utf8_are_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("One café.\nTwo.\nA résumé.\n".encode("latin1"))
    with pytest.warns(
        UserWarning, match="ELMOW005.*a.txt is not UTF-8 in 2 of.* line 1"
    ):
        assert list(read_documents(path)) == [
            ["One caf\ufffd.", "Two.", "A r\ufffdsum\ufffd."]
        ]
    with pytest.raises(CorpusError, match="line 1 is not UTF-8.*0xe9"):
        list(read_documents(path, strict=True))


def test_text_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(("A résumé.\n" + 5 * "One.\n").encode("latin1") * 1200)
    with pytest.raises(CorpusError, match="1,001 are not UTF-8. Convert"):
        list(read_documents(path))


def test_a_stray_nul_is_no_utf16(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\0two of a line\n")
    assert list(read_documents(path)) == [["one\0two of a line"]]


def test_a_short_text_in_another_encoding_is_refused_at_its_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("A résumé.\n\n".encode("latin1") * 11)
    with pytest.raises(CorpusError, match="of 22 lines, 11 are not UTF-8. Convert"):
        list(read_documents(path))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("begin", [b"%PDF-1.7\n%\xe2\n", b"PK\x03\x04 1\n", b"\0\xff"])
def test_a_binary_file_by_the_name_of_a_text_is_refused(tmp_path, begin, strict):
    path = tmp_path / "a.txt"
    path.write_bytes(begin + b"\nfont\n")
    with pytest.raises(CorpusError, match="a.txt: is a binary file.*text out of it"):
        list(read_documents(path, strict=strict))


@pytest.mark.parametrize("strict", [True, False])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, strict):
    path = tmp_path / "a.txt"
    path.write_text(TXT, encoding="utf-8-sig")
    assert list(read_documents(path, strict=strict)) == DOCUMENTS
    path.write_text(TXT, encoding="utf-16")
    with pytest.raises(CorpusError, match="UTF-16"):
        list(read_documents(path, strict=strict))
    path.write_text("ASCII text", encoding="utf-16-le")  # has no mark
    with pytest.raises(CorpusError, match="UTF-16"):
        list(read_documents(path, strict=strict))
