import os
from importlib.metadata import EntryPoint, EntryPoints

import catalogue
import pytest

from spacy_elmo import weights
from spacy_elmo.errors import MissingWeights
from spacy_elmo.weights import en_elmo_sm, resolve
from spacy_elmo.weights.published import cache_folder


def test_a_name_asks_no_other_package(monkeypatch):
    """Nor does one that cannot be imported take all names with it."""
    found = [
        EntryPoint("broken", "no.such.package:weights", "spacy_elmo_weights"),
        EntryPoint("en_elmo_sm", "spacy_elmo.weights:en_elmo_sm", "spacy_elmo_weights"),
    ]
    monkeypatch.setattr(catalogue, "AVAILABLE_ENTRY_POINTS", EntryPoints(found))
    monkeypatch.setattr(weights, "entry_points", EntryPoints(found).select)
    assert resolve("en_elmo_sm") == en_elmo_sm()
    with pytest.raises(MissingWeights, match=r"\(broken, en_elmo_sm\)"):
        resolve("en_elmo_xm")


def test_a_path_may_be_in_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME" if os.name == "posix" else "USERPROFILE", str(tmp_path))
    (tmp_path / "my_bilm").mkdir()
    assert resolve("~/my_bilm") == tmp_path / "my_bilm"
    monkeypatch.setenv("SPACY_ELMO_CACHE", "~/models")
    assert cache_folder() == tmp_path / "models"


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_what_can_be_no_path_is_missing(name):
    with pytest.raises(MissingWeights, match="ELMO001"):
        resolve(name)
