import numpy as np
import spacy
from spacy.cli._util import app
from typer.testing import CliRunner


def test_a_warm_copy_starts_sentences_elsewhere(tiny_weights, tmp_path):
    text = tmp_path / "text.txt"
    lines = (f"She made play {i % 9} .\nIt was good .\n" for i in range(400))
    text.write_text("".join(lines), encoding="utf8")
    command = ["elmo", "warm", tiny_weights, text, tmp_path / "warm", "--tokenized"]
    result = CliRunner().invoke(app, [str(arg) for arg in command])
    assert result.exit_code == 0, result.output
    assert "800 sentences" in result.output
    docs = []
    for state in ("zero", "warm"):
        nlp = spacy.blank("xx")
        model = {"@architectures": "spacy_elmo.BiLM.v1", "initial_state": state}
        model["weights"] = str(tmp_path / "warm")
        nlp.add_pipe("elmo", config={"model": model})
        nlp.to_disk(tmp_path / state)
        docs.append(spacy.load(tmp_path / state)("She made a play."))
    zero, warm = (doc._.elmo for doc in docs)
    np.testing.assert_array_equal(zero[:, 0], warm[:, 0])
    assert not np.allclose(zero[:, 1:], warm[:, 1:], atol=1e-3)


def test_weights_without_one_are_refused(tiny_weights, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Too short .\n", encoding="utf8")
    command = ["elmo", "warm", tiny_weights, text, tmp_path / "warm"]
    result = CliRunner().invoke(app, [str(arg) for arg in command])
    assert result.exit_code == 1
    assert "ELMO043" in result.output
    assert not (tmp_path / "warm").exists()
