from importlib.metadata import EntryPoint, EntryPoints

import catalogue

from spacy_elmo.weights import en_elmo_sm, resolve


def test_a_name_asks_no_other_package(monkeypatch):
    """Nor does one that cannot be imported take all names with it."""
    found = [
        EntryPoint("broken", "no.such.package:weights", "spacy_elmo_weights"),
        EntryPoint("en_elmo_sm", "spacy_elmo.weights:en_elmo_sm", "spacy_elmo_weights"),
    ]
    monkeypatch.setattr(catalogue, "AVAILABLE_ENTRY_POINTS", EntryPoints(found))
    assert resolve("en_elmo_sm") == en_elmo_sm()
