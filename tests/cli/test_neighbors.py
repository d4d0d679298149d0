import json
import re

import numpy as np
import pytest
import spacy
from spacy.tokens import DocBin

QUERY = "He made a spectacular [play] on the ball."
LINES = [
    "She wrote a short play for the small theatre.",
    "Our goalkeeper made a brilliant play on the line.",
    "Children play in the garden. The dog sleeps.",
    "He made a spectacular play on the ball.",
    "",
    "She wrote a short play for the small theatre.",
    'Play it "again", & <louder>!',
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(LINES), encoding="utf8")
    return path


@pytest.fixture(scope="module")
def find(elmo, tiny_weights):
    """find(corpus, "a [query]", ...) -> the one result of --json"""

    def run(*args):
        result = elmo("neighbors", *args, "--weights", tiny_weights, "--json")
        assert result.exit_code == 0, result.output
        (found,) = json.loads(result.output)
        return found

    return run


def cosine(x, y):
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


@pytest.mark.parametrize("layer", ["top", "mean", 1])
def test_contexts_are_ranked_by_the_cosine_of_a_layer(layer, find, corpus, bilm_config):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": bilm_config(), "vectors": layer})
    query = nlp(QUERY.replace("[", "").replace("]", ""))[4]
    # The fourth line is the query's own, the sixth stands there twice.
    docs = nlp.pipe([*LINES[:3], LINES[6]])
    wanted = [cosine(query.vector, token.vector) for doc in docs for token in doc]
    best = sorted(wanted, reverse=True)[:7]
    found = find(corpus, QUERY, "--layer", layer, "-n", 7)
    assert [c["score"] for c in found["contexts"]] == pytest.approx(best, abs=1e-5)
    assert found["layer"] == str(layer)
    for context in found["contexts"]:
        word = context["text"][context["start"] : context["end"]]
        assert word == context["word"]


def test_a_corpus_that_is_not_utf8_is_an_error(elmo, tiny_weights, tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("a caf\xe9 play".encode("latin1"))
    result = elmo("neighbors", path, QUERY, "--weights", tiny_weights)
    assert result.exit_code == 1
    assert "ELMO051" in result.text and "line 1 is not UTF-8" in result.text


def test_own_and_repeated_sentences_are_left_out(find, corpus):
    contexts = find(corpus, QUERY, "-n", 99)["contexts"]
    found = [c["text"] for c in contexts if c["word"].lower() == "play"]
    assert sorted(found) == sorted([*LINES[:2], LINES[2][:28], LINES[6]])


def test_every_kind_of_corpus_gives_the_same(find, corpus, tmp_path):
    nlp = spacy.blank("en")
    lines = [line for line in LINES if line]
    docs = list(nlp.pipe(lines))
    DocBin(docs=docs).to_disk(tmp_path / "a.spacy")
    jsonl = "".join(json.dumps({"text": line}) + "\n" for line in lines)
    (tmp_path / "a.jsonl").write_text(jsonl)
    # The words of a sentence: spaCy's Docs of words have no text but theirs
    tokens = [[t.text for t in doc] for doc in docs]
    jsonl = "".join(json.dumps({"tokens": words}) + "\n" for words in tokens)
    (tmp_path / "tokens.jsonl").write_text(jsonl)
    wanted = find(corpus, QUERY)
    for name in ("a.spacy", "a.jsonl", "tokens.jsonl"):
        found = find(tmp_path / name, QUERY)
        assert [c["word"] for c in found["contexts"]] == [
            c["word"] for c in wanted["contexts"]
        ]
        assert [c["score"] for c in found["contexts"]] == pytest.approx(
            [c["score"] for c in wanted["contexts"]], abs=1e-5
        )


def test_tokenized_lines_are_split_at_spaces_only(find, tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("Don't play  (much) , Mr.Smith .\n")
    found = find(path, "They  don't play [Mr.Jones] .", "--tokenized", "-n", 9)
    assert {c["word"] for c in found["contexts"]} == set(path.read_text().split())
    assert found["query"]["text"] == "They don't play Mr.Jones ."
    assert found["query"]["word"] == "Mr.Jones"


def test_a_limit_of_tokens_ends_with_its_batch(find, corpus, monkeypatch):
    monkeypatch.setattr("spacy_elmo.cli.inputs.BATCH_LENGTH", 10)
    found = find(corpus, QUERY, "--limit", 4, "-n", 9)
    assert {c["text"] for c in found["contexts"]} == {LINES[0]}


def test_words_of_the_corpus_do_not_stay_in_memory(tmp_path):
    from spacy_elmo.cli.inputs import read_batches

    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"word{i} number{i}\n\n" for i in range(4000)))
    nlp = spacy.blank("en")
    before, seen = len(nlp.vocab.strings), 0
    for docs in read_batches(nlp, str(path), tokenized=False):
        assert sum(map(len, docs)) <= 8192
        seen += len(docs)
    assert seen == 4000
    assert len(nlp.vocab.strings) < before + 100


def test_docs_of_a_docbin_are_of_the_language_of_the_pipeline(tmp_path):
    """A semicolon ends a sentence in Greek."""
    from spacy_elmo.cli.inputs import read_batches
    from spacy_elmo.pipeline.vector_files import Job

    nlp, path = spacy.blank("el"), tmp_path / "corpus.spacy"
    words = ["Τι", "κάνεις", ";", "Είμαι", "καλά", "."]
    DocBin(docs=[spacy.tokens.Doc(nlp.vocab, words=words)]).to_disk(path)
    ((read,),) = read_batches(nlp, str(path), tokenized=False)
    (embedded,) = Job(nlp, None, None, "float32", False, tmp_path).read(path)
    assert read.lang_ == embedded.lang_ == "el"


def test_each_query_has_its_contexts_below_it(elmo, corpus, tiny_weights):
    queries = (QUERY, "The [dog] barks.")
    result = elmo("neighbors", corpus, *queries, "-n", 2, "-w", tiny_weights)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line[:2] in ("1.", "0.")]
    assert len(lines) == 6 and all(line.count("[") == 1 for line in lines)
    assert lines[0] == f"1.000  {QUERY}" and lines[3] == "1.000  The [dog] barks."


def test_a_pipeline_instead_of_weights(find, elmo, corpus, bilm_config, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", name="reader", config={"model": bilm_config()})
    nlp.to_disk(tmp_path / "nlp")
    result = elmo("neighbors", corpus, QUERY, "--pipeline", tmp_path / "nlp", "--json")
    (found,) = json.loads(result.output)
    assert found["contexts"] == find(corpus, QUERY)["contexts"]


def test_sentences_are_those_that_components_before_elmo_set(
    elmo, corpus, bilm_config, tmp_path
):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer", config={"punct_chars": ["none"]})
    nlp.add_pipe("elmo", config={"model": bilm_config(), "vectors": "top"})
    nlp.to_disk(tmp_path / "nlp")
    query, other = nlp("He left. She stayed here")[1], nlp(LINES[2])
    text = "He [left]. She stayed here"
    options = "--pipeline", tmp_path / "nlp", "-n", 100, "--json"
    (found,) = json.loads(elmo("neighbors", corpus, text, *options).output)
    wanted = cosine(query.vector, other[6].vector)  # "The", of the second sentence
    assert other[6].text == "The" and other.text in [
        c["text"] for c in found["contexts"]
    ]
    found = [c["score"] for c in found["contexts"] if c["word"] == "The"]
    assert found == [pytest.approx(wanted, abs=1e-5)]


@pytest.mark.parametrize(
    "args, message",
    [
        (["He made a play"], "ELMO120.*0 words in brackets"),
        (["caf\udce9 [dog]"], "ELMO051.*udce9.* is not UTF-8"),
        (["A [fine] [play]"], "ELMO120.*2 words in brackets"),
        (["A [fine play]!"], "ELMO121.*'fine play'.*'fine', 'play'"),
        (["A [pla]y!"], "ELMO121.*'pla'.*'play'"),
        (["A [play]", "--layer", "3"], "ELMO124.* 3 is neither a layer.*3 layers"),
        (["A [play]", "--layer", "best"], "ELMO124.*'best' is neither a layer"),
        (["A [play]", "--pipeline", "BLANK"], "ELMO126"),
        (["A [play]", "--lang", "klingon"], "ELMO135.*klingon"),
    ],
)
def test_bad_arguments(args, message, elmo, corpus, tiny_weights, tmp_path):
    spacy.blank("en").to_disk(tmp_path)
    args = [tmp_path if arg == "BLANK" else arg for arg in args]
    result = elmo("neighbors", corpus, *args, "--weights", tiny_weights)
    assert result.exit_code == 1, result.output
    assert re.search(message, result.text), result.text


def test_a_missing_corpus_and_a_pipeline_without_elmo(elmo, corpus, tmp_path):
    spacy.blank("en").to_disk(tmp_path)
    result = elmo("neighbors", corpus, "A [play]", "--pipeline", tmp_path)
    assert result.exit_code == 1 and "[ELMO122]" in result.text
    result = elmo("neighbors", tmp_path / "missing.txt", "A [play]")
    assert result.exit_code == 1 and "[ELMO050]" in result.text
