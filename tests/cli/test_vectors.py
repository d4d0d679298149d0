import gzip

import numpy as np
import pytest
import spacy
from spacy.cli._util import app
from typer.testing import CliRunner

from spacy_elmo.pipeline import static_vectors

LINES = ["She made a play.", "They play it in a garden.", "", "A play, a play!"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(LINES), encoding="utf8")
    return path


def test_spacy_without_this_package_reads_them(elmo, corpus, tiny_weights, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("gardener\nplay in\n", encoding="utf8")
    out = tmp_path / "vectors.txt.gz"
    result = elmo("vectors", tiny_weights, corpus, out, "--words", words)
    assert result.exit_code == 0, result.output
    init = ["init", "vectors", "en", str(out), str(tmp_path / "nlp")]
    assert CliRunner().invoke(app, init).exit_code == 0
    nlp = spacy.load(tmp_path / "nlp")
    assert nlp.vocab.vectors.shape == (13, 12) and nlp("gardener")[0].has_vector
    assert nlp.pipe_names == [] and "elmo" not in nlp.config.to_str()
    lines = gzip.open(out, "rt", encoding="utf8").readlines()
    assert [line.split()[0] for line in lines[:3]] == ["13", "play", "a"]
    assert lines[-1].startswith("gardener ")
    assert "vectors.txt.gz has 13 vectors of width 12" in result.text


def test_options_choose_the_words_and_the_layer(elmo, corpus, tiny_weights, tmp_path):
    def table(*options):
        out = tmp_path / "out.txt"
        result = elmo("vectors", tiny_weights, corpus, out, *options)
        assert result.exit_code == 0, result.output
        (header, *lines) = out.read_text(encoding="utf8").splitlines()
        rows = [line.split(" ") for line in lines]
        assert header == f"{len(rows)} 12"
        return {word: np.array(vector, float) for word, *vector in rows}

    assert list(table("--max-words", 2)) == ["play", "a"]
    assert list(table("--min-count", 3)) == ["play", "a"]
    assert "play." in table("--tokenized") and "play." not in table("--raw")
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy_elmo.BiLM.v1", "weights": str(tiny_weights)}
    nlp.add_pipe("elmo", config={"model": model})
    wanted = nlp("play")[0]._.elmo[0]
    np.testing.assert_allclose(table("--layer", 0)["play"], wanted, rtol=1e-3)


@pytest.mark.parametrize(
    "args, problem",
    [
        (["{tiny}", "none.txt"], "ELMO050"),
        (["{tiny}", "/dev/null"], "ELMO050"),
        (["nowhere", "{text}"], "ELMO001"),
        (["", "{text}"], "ELMO001"),
        (["{tiny}", "{text}", "--layer", "3"], "ELMO124"),
        (["{tiny}", "{text}", "--min-count", "99"], "99 times or more"),
        (["{tiny}", "{text}", "--words", "{latin}"], "not UTF-8"),
    ],
)
def test_bad_input_gets_a_message(elmo, corpus, tiny_weights, tmp_path, args, problem):
    latin = tmp_path / "latin"
    latin.write_bytes(b"caf\xe9")
    names = {"tiny": tiny_weights, "text": corpus, "latin": latin}
    args = [arg.format(**names) for arg in args]
    args.insert(2, tmp_path / "out.txt")
    result = elmo("vectors", *args)
    assert result.exit_code == 1
    assert problem in result.text and "Traceback" not in result.text
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("option", [[], ["--words", "{text}"]])
def test_what_is_read_is_not_replaced(elmo, corpus, tiny_weights, tmp_path, option):
    texts = tmp_path / "more.txt" if option else corpus
    texts.write_text("\n".join(LINES), encoding="utf8")
    option = [arg.format(text=corpus) for arg in option]
    result = elmo("vectors", tiny_weights, texts, corpus, *option)
    assert result.exit_code == 1 and "ELMO111" in result.text
    assert corpus.read_text(encoding="utf8").splitlines() == LINES


def test_an_output_that_cannot_be_written_costs_no_work(
    elmo, corpus, tiny_weights, tmp_path, monkeypatch
):
    monkeypatch.setattr(static_vectors, "average_contexts", None)
    (tmp_path / "file").touch()
    result = elmo("vectors", tiny_weights, corpus, tmp_path / "file" / "out.txt")
    assert result.exit_code == 1 and "file" in result.text
    assert "Traceback" not in result.text
