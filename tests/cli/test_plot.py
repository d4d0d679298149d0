import math
import sys

import pytest

from spacy_elmo.pretraining.loggers import read_log

LINE = '{"step": 1, "tokens": 100, "loss": 3.0, "learn_rate": 0.1}\n'


def test_the_curves_of_runs_become_a_picture(elmo, trained, tmp_path):
    pytest.importorskip("matplotlib")
    folder, _ = trained
    image = tmp_path / "curve.png"
    result = elmo("plot", folder, folder / "log.jsonl", "-o", image)
    assert result.exit_code == 0, result.output
    assert image.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_a_suffix_gets_one(elmo, trained, tmp_path):
    pytest.importorskip("matplotlib")
    result = elmo("plot", trained[0], "-o", tmp_path / "curve")
    assert result.exit_code == 0 and "curve.png" in result.text.replace(" ", "")
    assert (tmp_path / "curve.png").is_file()


def test_a_folder_gets_a_picture(elmo, trained, tmp_path):
    pytest.importorskip("matplotlib")
    elmo("plot", trained[0], "-o", tmp_path)
    assert (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")


def test_torn_lines_are_left_out(elmo, tmp_path):
    pytest.importorskip("matplotlib")
    log = tmp_path / "log.jsonl"
    log.write_text(LINE + LINE[:20] + "\n" + LINE + LINE[:20])
    assert elmo("plot", log, "-o", tmp_path / "curve.svg").exit_code == 0


def test_held_out_files_have_curves_of_their_own(elmo, tmp_path):
    pytest.importorskip("matplotlib")
    log, image = tmp_path / "log.jsonl", tmp_path / "curve.svg"
    log.write_text(
        LINE + '{"step": 1, "tokens": 100, "average": 9.0, "files": '
        '{"news.txt": {"average": 8.0}, "tokens": {"average": 10.0}}}\n'
    )
    assert elmo("plot", log, "-o", image).exit_code == 0
    assert "news.txt" in image.read_text()
    # A file may have the name of something else that is in the log.
    *_, last = read_log(log)
    assert last["tokens"] == 100 and last["files"]["tokens"]["average"] == 10.0


def test_a_run_that_diverged_has_its_last_record(tmp_path):
    (tmp_path / "log.jsonl").write_text(LINE + LINE.replace("3.0", "Infinity"))
    assert [record["loss"] for record in read_log(tmp_path)] == [3.0, math.inf]


@pytest.mark.parametrize("text", ["no log\n", '{"step": 1}\n', '{"tokens": 1}\n', ""])
def test_what_is_no_log_is_a_message(elmo, tmp_path, text):
    log = tmp_path / "log.jsonl"
    log.write_text(text)
    result = elmo("plot", log, "-o", tmp_path / "curve.png")
    assert result.exit_code == 1
    assert "ELMO051" in result.text and "no losses" in result.text


def test_a_missing_log_is_a_message(elmo, tmp_path):
    result = elmo("plot", tmp_path / "log.jsonl")
    assert result.exit_code == 1 and "no such file" in result.text


def test_an_unknown_format_is_a_message(elmo, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "log.jsonl").write_text(LINE)
    result = elmo("plot", tmp_path, "-o", tmp_path / "curve.doc")
    assert result.exit_code == 1 and "curve.doc" in result.text


def test_without_matplotlib_it_says_what_to_install(elmo, tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "log.jsonl").write_text(LINE)
    result = elmo("plot", tmp_path)
    assert result.exit_code == 1 and "pip install matplotlib" in result.text
