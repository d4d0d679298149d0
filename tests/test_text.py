import gzip
import lzma
import os
import sys
from pathlib import Path

import pytest
import smart_open
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from spacy_elmo import text
from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.config import CorpusSettings
from spacy_elmo.pretraining.tokenizer import Tokenizer
from spacy_elmo.text import find_texts, read_documents

TXT = "One line.\nA second.\n\n\nAnother document.\n"
DOCUMENTS = [["One line.", "A second."], ["Another document."]]
COMPRESSED = pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])


def test_empty_lines_separate_documents(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text(TXT)
    assert list(read_documents(path)) == DOCUMENTS
    monkeypatch.setattr(text, "MAX_DOCUMENT_LINES", 1)
    assert list(read_documents(path)) == [["One line."], ["A second."], DOCUMENTS[1]]


@COMPRESSED
def test_compressed_text_reads_as_plain_text_does(tmp_path, suffix):
    # No name is taken for an address.
    path = tmp_path / f"~a%20 #1?.txt{suffix}"
    with smart_open.open(path, "wb") as file:
        file.write(TXT.encode())
    assert path.is_file() and path.read_bytes() != TXT.encode()
    assert list(read_documents(path)) == DOCUMENTS
    # The frame of a single block cannot be cut in the middle for all four.
    path.write_bytes(b"no such format")
    with pytest.raises(CorpusError, match=f"txt{suffix}: is not readable"):
        list(read_documents(path))


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
    assert list(text.read_texts(Path("ch1:intro.txt"))) == ["She made a play."]


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


def test_jsonl_has_text_or_tokens(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "One.\\nTwo."}\n\n{"tokens": ["a", "b"]}\n{"tokens": [""]}\n'
        '{"text": "x\\ud800y"}\n'
    )
    wanted = [["One.", "Two."], [["a", "b"]], [["\ufffd"]], ["xy"]]
    assert list(read_documents(path)) == wanted  # spaCy has no empty words


@pytest.mark.parametrize(
    "line",
    [
        '{"txt": "a"}',
        "[1]",
        "{",
        '{"text": 1}',
        '{"tokens": [["a"]]}',
        '{"tokens": ["a", null]}',
    ],
)
def test_a_bad_line_of_jsonl_is_named(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(CorpusError, match=r"a\.jsonl: line 2"):
        list(read_documents(path))


def test_of_text_and_tokens_the_tokens_are_those_of_tokenized_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "我很好。", "tokens": ["我", "很", "好", "。"]}', "utf8")
    (document,) = read_documents(path, tokenized=True)
    assert document == [["我", "很", "好", "。"]]
    assert list(text.read_texts(path, tokenized=True)) == document
    assert list(read_documents(path)) == [["我很好。"]]


def test_docbin_keeps_its_tokens_and_sentences(tmp_path):
    words = ["No", "stop", "A", "second"]
    doc = Doc(Vocab(), words=words, sent_starts=[True, False, True, False])
    DocBin(docs=[doc]).to_disk(tmp_path / "a.spacy")
    (document,) = read_documents(tmp_path / "a.spacy")
    sentences = Tokenizer({"lang": "en"}, CorpusSettings())(document)
    assert sentences == [["No", "stop"], ["A", "second"]]
    (tmp_path / "b.spacy").write_bytes(b"no DocBin")
    with pytest.raises(CorpusError, match="b.spacy"):
        list(read_documents(tmp_path / "b.spacy"))


@COMPRESSED
def test_a_docbin_may_be_compressed(tmp_path, suffix):
    docbin = DocBin(docs=[Doc(Vocab(), words=["One", "line"])])
    path = tmp_path / f"a.spacy{suffix}"
    with smart_open.open(path, "wb") as file:
        file.write(docbin.to_bytes())
    assert find_texts(path) == [path]
    assert [doc.text for doc in read_documents(path)] == ["One line "]


def test_words_of_a_docbin_are_what_they_are_in_a_text(tmp_path):
    """Which words are spaces and which punctuation: sentences depend on it."""
    words = ["He", "said", '"', "Stop", ".", '"', "\n\n", "Then", "left", "."]
    DocBin(docs=[Doc(Vocab(), words=words)]).to_disk(tmp_path / "a.spacy")
    (doc,) = read_documents(tmp_path / "a.spacy")
    assert [t.text for t in doc if t.is_punct] == ['"', ".", '"', "."]
    assert [t.i for t in doc if t.is_space] == [6]


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(TXT)
    monkeypatch.chdir(tmp_path)
    assert find_texts(".")
    with pytest.raises(CorpusError, match="'' .*: there is no such"):
        find_texts("")


def test_links_to_folders_are_followed_and_each_file_read_once(tmp_path):
    (tmp_path / "text" / "more").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for name in ("text/a.txt", "text/more/b.txt", "elsewhere/c.txt"):
        (tmp_path / name).write_text(TXT)
    (tmp_path / "text" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "text" / "more" / "around").symlink_to(tmp_path / "text")
    found = [path.relative_to(tmp_path) for path in find_texts(tmp_path / "text")]
    assert [path.as_posix() for path in found] == [
        "text/a.txt", "text/linked/c.txt", "text/more/b.txt",
    ]  # fmt: skip


def test_links_to_a_folder_around_them_end(tmp_path):
    (tmp_path / "a.txt").write_text(TXT)
    for name in ("one", "two", "three"):
        (tmp_path / name).symlink_to(tmp_path)
    assert find_texts(tmp_path) == [tmp_path / "a.txt"]


def test_a_folder_that_cannot_be_read_is_no_shorter_corpus(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(TXT)
    (tmp_path / "sub").mkdir()
    scandir = os.scandir

    def refused(path):  # root may read everything
        if os.fspath(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(CorpusError, match=r"sub: is not readable \(Permission denied"):
        find_texts(tmp_path)


def test_the_home_directory_has_its_short_name(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(TXT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert find_texts("~/a.txt") == find_texts("~/*.txt") == [tmp_path / "a.txt"]


@pytest.mark.parametrize("pattern", ["", "*"])
def test_a_link_to_nothing_is_no_shorter_corpus(tmp_path, pattern):
    (tmp_path / "a.txt").write_text(TXT)
    (tmp_path / "b.txt.gz").symlink_to(tmp_path / "unmounted" / "b.txt.gz")
    with pytest.raises(CorpusError, match="b.txt.gz: is a link to nothing"):
        find_texts(tmp_path / pattern)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_a_pipe_is_called_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="it is a pipe.*to a file first"):
        find_texts(tmp_path / "pipe")


def test_files_directories_and_globs_are_found(tmp_path):
    names = ["b.txt", "a.jsonl", "sub/c.txt.gz", "sub/notes.md", "d.spacy"]
    hidden = ["._b.txt", ".ipynb_checkpoints/b.txt", "sub/.c.txt"]
    for name in [*names, *hidden]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def found(pattern):
        paths = find_texts(tmp_path / pattern)
        return [path.relative_to(tmp_path).as_posix() for path in paths]

    assert found("b.txt") == ["b.txt"]
    assert found(".") == ["a.jsonl", "b.txt", "d.spacy", "sub/c.txt.gz"]
    assert found("*.txt") == ["b.txt"]
    assert found("**/*.txt*") == ["b.txt", "sub/c.txt.gz"]
    with pytest.raises(CorpusError, match=r"ELMO050.*none\*: there is no such file"):
        find_texts(tmp_path / "none*")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="ELMO050.*empty: the directory has no .txt"):
        find_texts(tmp_path / "empty")
    (tmp_path / "ud.conllu").touch()
    with pytest.raises(CorpusError, match="ud.conllu.*--treebank"):
        find_texts(tmp_path / "ud.conllu")
    with pytest.raises(CorpusError, match="notes.md"):
        find_texts(tmp_path / "sub/notes.md")


def test_suffixes_may_be_in_capitals(tmp_path):
    (tmp_path / "A.TXT").write_text(TXT)
    (tmp_path / "B.TXT.GZ").write_bytes(gzip.compress(TXT.encode()))
    found = find_texts(tmp_path)
    assert [list(read_documents(path)) for path in found] == [DOCUMENTS] * 2


def test_plain_text_without_a_suffix_may_be_named(tmp_path):
    """The shards of the 1 Billion Word Benchmark have none."""
    for i in (1, 2):
        (tmp_path / f"news.en-0000{i}-of-00100").write_text(TXT, encoding="utf8")
    (tmp_path / "binary").write_bytes(b"\x00\xff\x00")
    found = find_texts(tmp_path / "news.en-*")
    assert [path.name[-10:] for path in found] == ["1-of-00100", "2-of-00100"]
    assert list(read_documents(found[0])) == DOCUMENTS
    with pytest.raises(CorpusError, match="binary"):
        find_texts(tmp_path / "binary")


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
