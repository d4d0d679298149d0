import pytest
import smart_open
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.config import CorpusSettings
from spacy_elmo.pretraining.tokenizer import Tokenizer
from spacy_elmo.text import documents
from spacy_elmo.text.documents import read_documents, read_texts
from spacy_elmo.text.files import find_texts

TXT = "One line.\nA second.\n\n\nAnother document.\n"
DOCUMENTS = [["One line.", "A second."], ["Another document."]]
COMPRESSED = pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])


def test_empty_lines_separate_documents(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text(TXT)
    assert list(read_documents(path)) == DOCUMENTS
    monkeypatch.setattr(documents, "MAX_DOCUMENT_LINES", 1)
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
        '{"tokens": ["a", true]}',
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
    assert list(read_texts(path, tokenized=True)) == document
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
