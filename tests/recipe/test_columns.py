"""What is wrong with a line is said before spaCy's converters read it."""

from pathlib import Path

import pytest
from made_up import CONLLU

from spacy_elmo.errors import CorpusError
from spacy_elmo.recipe.columns import prepare_for_converter

FILE = Path("treebank")


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("\tNOUN\t", "\tnoun\t", r"line \d: .*\(UPOS\) is 'noun'"),
        ("\tNumber=Sing\t", "\tSing\t", r"line \d: .*\(FEATS\) are 'Sing'"),
        ("\tBuch\tBuch", "\t\tBuch", r"line \d: .*\(FORM\) is empty"),
        ("\t4\tdet\t", "\tx\tdet\t", r"line \d: the head is 'x'"),
        ("\t4\tdet\t", "\t99\tdet\t", "head of 'das' is 99, of 5 words: 'Anna liest"),
        ("\tdet\t", " det\t", r"line \d: there are 9 columns"),
    ],
)
def test_a_conllu_that_the_converter_would_fail_at(old, new, problem):
    assert old in CONLLU
    with pytest.raises(CorpusError, match=problem):
        prepare_for_converter(FILE, CONLLU.replace(old, new), "conllu")


def test_a_conllu_without_gaps_stays_as_it_is_but_for_comments():
    found = prepare_for_converter(FILE, "# text = Anna\n" + CONLLU, "conllu")
    lines = [line for line in CONLLU.split("\n") if not line.startswith("#")]
    assert found.split("\n") == "\n".join(lines).strip().split("\n")


@pytest.mark.parametrize(
    "kind, lines", [("conll", "Anna B-PER\nlacht O"), ("conllu", CONLLU.strip())]
)
def test_sentences_without_empty_lines_between_them(kind, lines):
    with pytest.raises(CorpusError, match="no empty lines"):
        prepare_for_converter(FILE, f"{lines}\n" * 600, kind)


@pytest.mark.parametrize(
    "line, n", [("wohnt NNP O", 2), ("wohnt O", 3), ("wohnt VVFIN _ O", 3)]
)
def test_lines_of_a_sentence_have_the_same_columns(line, n):
    first = "Anna\tB-PER" if n == 2 else "Anna NNP B-PER"
    with pytest.raises(CorpusError, match=f"line 2: .* columns, the line before {n}"):
        prepare_for_converter(FILE, f"{first}\n{line}\n\n" * 3, "conll")


@pytest.mark.parametrize(
    "kind, line", [("conll", "20\u00a0000\tO"), ("iob", "20\u00a0000|O")]
)
def test_words_have_no_spaces(kind, line):
    """The converters would divide them, too: 000 would be a tag."""
    with pytest.raises(CorpusError, match=r"line 1: a word has a space .*U\+00A0"):
        prepare_for_converter(FILE, f"{line}\n\n" * 3, kind)


@pytest.mark.parametrize("line", ["Anna|B-PER ins|O|", "Anna|B-PER |O", "a|b|c|O", "O"])
def test_tokens_of_a_line_have_the_same_parts(line):
    with pytest.raises(CorpusError, match="line 2: its tokens are not all"):
        prepare_for_converter(FILE, f"Anna|B-PER lacht|O\n{line}\n", "iob")
