import gzip
import re

import pytest
import spacy
from made_up import CONLLU

from spacy_elmo.errors import CorpusError
from spacy_elmo.recipe.treebank import compare_tokens, components_for, read_treebank

WITHOUT_HEADS = "".join(
    "\t".join([*line.split("\t")[:6], "_", "_", "_", "_"]) + "\n" if line else "\n"
    for line in CONLLU.split("\n")[1:-1]
)


@pytest.fixture
def read(tmp_path):
    def read(content, name="treebank.conllu"):
        path = tmp_path / name
        path.write_text(content, encoding="utf8")
        return read_treebank(path)

    return read


def test_a_tokenizer_is_compared_with_the_treebank(read):
    docs, nlp = read(CONLLU.replace("Buch", "E-Buch")), spacy.blank("de")
    assert compare_tokens(docs, nlp) == (1.0, [])
    nlp.tokenizer.infix_finditer = lambda text: re.finditer("-", text)
    assert compare_tokens(docs, nlp) == (0.8, ["'E-Buch' becomes 'E - Buch'"])
    nlp.tokenizer = {}.__getitem__
    with pytest.raises(CorpusError, match="ELMO051.*'Anna liest das E-Buch.*KeyError"):
        compare_tokens(docs, nlp)


def test_a_treebank_without_xpos_has_no_tags(read):
    row = "{0}\t{1}\t{1}\t{2}\t_\t_\t{3}\tdep\t_\t_\n"
    words = [(1, "in", "ADP", 3), (2, "dem", "DET", 3), (3, "Haus", "NOUN", 0)]
    rows = "".join(row.format(*columns) for columns in words)
    docs = read("1-2\tim" + 8 * "\t_" + "\n" + rows + "\n")
    assert components_for(docs) == ["morphologizer", "parser"]


def test_words_without_any_tag_have_none_together(read):
    row = "{0}\t{1}" + 4 * "\t_" + "\t{2}\tdep\t_\t_\n"
    words = [(1, "in", 3), (2, "dem", 3), (3, "Haus", 0)]
    rows = "".join(row.format(*columns) for columns in words)
    docs = read("1-2\tim" + 8 * "\t_" + "\n" + rows + "\n")
    assert components_for(docs) == ["parser"]


def test_words_without_xpos_among_others_have_no_tag(read):
    """To the converter, their tag is their part of speech."""
    row = "{0}\t{1}\t{1}\t{2}\t{3}\t_\t{4}\tdep\t_\t_\n"
    words = [(1, "in", "ADP", "_", 3), (2, "dem", "DET", "ART", 3)]
    words += [(3, "Haus", "NOUN", "NN", 0), (4, ".", "PUNCT", "_", 3)]
    rows = "".join(row.format(*columns) for columns in words)
    (doc,) = read("1-2\tim" + 8 * "\t_" + "\n" + rows + "\n")
    assert [token.text for token in doc] == ["im", "Haus", "."]
    assert [token.tag_ for token in doc] == ["", "NN", ""]
    assert components_for([doc]) == ["tagger", "morphologizer", "parser"]


@pytest.mark.parametrize("mark", ["-X- O O", "O", "-X- -X- O"])
def test_marks_between_documents_are_no_words(read, mark):
    text = f"-DOCSTART- {mark}\n\n" + 12 * "Anna B-PER\nlacht O\n\n"
    docs = read(text, "names.conll")
    assert [len(doc) for doc in docs] == [20, 4]
    assert {token.text for doc in docs for token in doc} == {"Anna", "lacht"}


def test_treebanks_may_be_compressed_and_from_windows(tmp_path):
    path = tmp_path / "A.CONLLU.GZ"
    path.write_bytes(gzip.compress(CONLLU.replace("\n", "\r\n").encode()))
    (doc,) = read_treebank(path)
    assert [token.text for token in doc] == "Anna liest das Buch .".split()
    assert components_for([doc]) == ["tagger", "morphologizer", "parser"]


def test_without_heads_no_parser_learns(read):
    (doc,) = read(3 * WITHOUT_HEADS)
    assert components_for([doc]) == ["tagger", "morphologizer"]
    assert [len(sentence) for sentence in doc.sents] == [5, 5, 5]


def test_where_some_sentences_have_no_heads_the_parser_learns_from_the_others(read):
    (doc,) = read(CONLLU + WITHOUT_HEADS)
    assert components_for([doc]) == ["tagger", "morphologizer", "parser"]
    assert [len(sentence) for sentence in doc.sents] == [5, 5]
    assert [token.has_head() for token in doc] == 5 * [True] + 5 * [False]


def test_a_word_without_a_head_is_no_sentence(read):
    (doc,) = read(CONLLU.replace("\t4\tdet\t", "\t_\t_\t"))
    assert len(list(doc.sents)) == 1
    assert [token.has_head() for token in doc] == [True, True, False, True, True]


@pytest.mark.parametrize("between", ["\n\n", " \n", "\n# end of a part\n\n"])
def test_empty_lines_and_comments_between_sentences(read, between):
    (doc,) = read(CONLLU + between + CONLLU)
    assert len(list(doc.sents)) == 2


def test_utf16(tmp_path):
    path = tmp_path / "treebank.conllu"
    path.write_text(CONLLU, encoding="utf16")
    with pytest.raises(CorpusError, match="UTF-16.*iconv -f utf16"):
        read_treebank(path)


@pytest.mark.parametrize("name", ["names.conll", "names.iob"])
@pytest.mark.parametrize("comment", ["# text = Anna lacht", "#", "# id 12 domain=de"])
def test_comments_are_no_words(read, name, comment):
    docs = read(f"{comment}\n# O\nAnna B-PER\nlacht O\n\n" * 3, name)
    assert [token.text for doc in docs for token in doc] == 3 * ["#", "Anna", "lacht"]
    assert {ent.label_ for doc in docs for ent in doc.ents} == {"PER"}


@pytest.mark.parametrize(
    "names, found",
    [
        (["name=B-GPE", "name=O", "name=O"], ["vonBonn"]),
        (["O", "SpaceAfter=No|NE=B-GPE", "I-GPE"], ["vonBonn am"]),
        (["B-GPE", "I-GPE", "I-GPE"], ["vonBonn am"]),
        (["U-GPE", "O", "name=B-GPE"], ["vonBonn", "am"]),
        (["O", "name=O", "name=B-GPE"], ["am"]),
    ],
)
def test_a_multiword_token_has_the_name_of_any_of_its_words(read, names, found):
    """To the converter, it has that of its uppermost word: here the second."""
    row = "{0}\t{1}\t{1}\tX\t_\t_\t{2}\tdep\t_\t{3}\n"
    words = zip((1, 2, 3, 4), ("von", "Bonn", "am", "Rhein"), (2, 0, 4, 2))
    rows = "".join(map(row.format, *zip(*words), [*names, "_"]))
    (doc,) = read("1-2\tvonBonn" + 8 * "\t_" + "\n" + rows + "\n")
    assert [ent.text for ent in doc.ents] == found


def test_parts_of_speech_are_no_tags_of_words_from_another_treebank(read):
    (doc,) = read(re.sub("\t(VVFIN|NE|NN|ART|\\$\\.)\t", "\t_\t", CONLLU))
    assert {token.tag_ for token in doc} == {""}
    assert "tagger" not in components_for([doc])


def test_a_file_of_comments_alone(read):
    with pytest.raises(CorpusError, match="no tags, no heads"):
        read("# text = Anna\n\n")
