import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPACY_ELMO_CACHE", str(tmp_path))


def test_without_a_name_the_models_are_listed(elmo, tmp_path):
    result = elmo("download")
    assert result.exit_code == 0
    for name in ("allennlp/original", "allennlp/original-5.5B", "nlpl/ID"):
        assert name in result.output
    assert str(tmp_path) in result.text.replace(" ", "")


def test_an_unknown_name_is_a_message(elmo):
    result = elmo("download", "allennlp/origin")
    assert result.exit_code == 1
    assert "ELMO100" in result.text and "allennlp/small" in result.text
    assert "Did you mean allennlp/original" in result.text


def test_what_is_installed_needs_no_download(elmo, tmp_path):
    result = elmo("download", "en_elmo_sm")
    assert result.exit_code == 0 and "nothing to download" in result.text
    assert not list(tmp_path.iterdir())


def test_info_says_how_to_get_a_model_that_is_not_here(elmo):
    result = elmo("info", "allennlp/original")
    assert result.exit_code == 1
    assert "spacy elmo download allennlp/original" in result.text
