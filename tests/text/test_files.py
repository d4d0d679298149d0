import gzip
import os

import pytest

from spacy_elmo.errors import CorpusError
from spacy_elmo.text.documents import read_documents
from spacy_elmo.text.files import find_texts

TXT = "One line.\nA second.\n\n\nAnother document.\n"
DOCUMENTS = [["One line.", "A second."], ["Another document."]]


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


@pytest.mark.parametrize(
    "name", ["a.jsonl.00", "a.jsonl-00000-of-00002", "a.jsonl.gz.1", "ud.conllu.01"]
)
def test_a_part_of_another_format_is_no_plain_text(tmp_path, name):
    """Its braces and quotes would be words."""
    (tmp_path / name).write_text('{"text": "One line."}')
    with pytest.raises(CorpusError, match=r"seems to be a part of a \.(jsonl|conllu)"):
        find_texts(tmp_path / name)
    (tmp_path / "wiki_00").write_text('{"id": "1", "text": "One line."}')
    with pytest.raises(CorpusError, match=r"wiki_00: seems to be JSON lines"):
        find_texts(tmp_path / "wiki_00")
    (tmp_path / "a.txt-2").write_text(TXT)
    assert find_texts(tmp_path / "a.txt-*") == [tmp_path / "a.txt-2"]


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
