import pytest
import spacy
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from spacy_elmo.errors import CorpusError
from spacy_elmo.recipe.raw_text import HELDOUT, split_text
from spacy_elmo.text.files import TEXT, find_texts


def test_text_without_spaces_is_told_what_to_do(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"{i:05}" + "的一是" * 20 for i in range(20_000)))
    with pytest.raises(CorpusError, match="ELMO140.*185 bytes.*--tokenized"):
        split_text(str(text), tmp_path)


def test_little_text_without_spaces_is_not_called_short(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"{i:05}" + "的一是" * 20 for i in range(100)))
    with pytest.raises(CorpusError, match="ELMO140"):
        split_text(str(text), tmp_path)


def test_docs_are_read_as_their_tokens_if_text_is_tokenized(tmp_path):
    vocab, words = spacy.blank("zh").vocab, ["我们", "很", "好", "。"] * 20
    starts = [i % 4 == 0 for i in range(80)]
    docs = [
        Doc(vocab, words=[f"{i}", *words[1:]], spaces=[False] * 80, sent_starts=starts)
        for i in range(300)
    ]
    path = tmp_path / "text.spacy"
    DocBin(docs=docs).to_disk(path)
    with pytest.raises(CorpusError, match="ELMO140"):
        split_text(str(path), tmp_path)
    survey = split_text(str(path), tmp_path, tokenized=True)
    assert survey.words + survey.heldout == 300 * 80
    lines = [
        (tmp_path / name).read_text("utf8").split("\n") for name in (TEXT, HELDOUT)
    ]
    assert {len(line.split()) for part in lines for line in part if line} == {4}


def test_a_word_with_a_space_would_be_two(tmp_path):
    doc = Doc(Vocab(), words=["nhà nước", "ta"] * 50)
    path = tmp_path / "text.spacy"
    DocBin(docs=[doc] * 300).to_disk(path)
    with pytest.raises(CorpusError, match="ELMO051.*text.spacy.*'nhà nước'.*a space"):
        split_text(str(path), tmp_path, tokenized=True)


def test_a_corpus_of_numbered_sentences_is_told_what_to_do(tmp_path):
    """Such are those of Leipzig."""
    path = tmp_path / "fin_sentences.txt"
    path.write_text("\n".join(f"{i}\tIt is {i} years old." for i in range(9000)))
    with pytest.raises(CorpusError, match="ELMO051.*numbers its lines.*cut -f 2"):
        split_text(str(path), tmp_path)


def test_no_more_is_held_out_than_an_evaluation_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_elmo.recipe.raw_text.MAX_HELDOUT", 1000)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"{i} " + "word " * 499 for i in range(400)))
    survey = split_text(str(path), tmp_path)
    assert (survey.heldout, survey.words) == (1000, 199_000)


def test_docs_are_divided_by_the_rules_of_the_language(tmp_path):
    words = ["Τι", "κάνεις", ";", "Είμαι", "καλά", "."]
    path = tmp_path / "text.spacy"
    vocab = spacy.blank("el").vocab
    docs = [Doc(vocab, words=[f"{i}", *words]) for i in range(4000)]
    DocBin(docs=docs).to_disk(path)
    for lang, longest in (("el", 4), ("en", 7)):
        split_text(str(path), tmp_path, tokenized=True, lang=lang)
        lines = (tmp_path / TEXT).read_text("utf8").split("\n")
        assert max(len(line.split()) for line in lines) == longest


def test_projects_in_the_folder_of_the_text_are_no_text(tmp_path):
    """They have the held-out sentences of a treebank."""
    texts, out = tmp_path / "texts", tmp_path / "out"
    project = texts / "mine"
    for folder in (project / "corpus", out):
        folder.mkdir(parents=True)
    (texts / "a.txt").write_text("".join(f"{i} words of a\n" for i in range(6000)))
    (project / "project.yml").write_text("vars: {}")
    (project / "corpus" / TEXT).write_text("".join(f"{i} b\n" for i in range(20_000)))
    assert split_text(str(texts), out).words < 24_000
    assert find_texts(texts) == [texts / "a.txt"]
    survey = split_text(str(project / "corpus" / TEXT), out)
    assert survey.words + survey.heldout == 40_000
