import copy
import pickle
import warnings

import numpy as np
import pytest
import spacy
from tasks import add_task

from spacy_elmo.layers.listener import ELMoListener, is_listener_of
from spacy_elmo.layers.shim import BiLMShim

TEXTS = ["She made a play.", "", " \n\n ", "Play!"]


@pytest.fixture
def elmo(nlp):
    return nlp.get_pipe("elmo")


@pytest.fixture
def listener(elmo):
    """Connected, as nlp does it when a component is added behind `elmo`."""
    listener = ELMoListener("elmo")
    elmo.add_listener(listener, "ner")
    listener.initialize()
    return listener


def counts(elmo, monkeypatch):
    """The sizes of the batches that the component is asked for."""
    asked, annotate = [], elmo.annotate
    monkeypatch.setattr(elmo, "annotate", lambda d: (asked.append(len(d)), annotate(d)))
    return asked


@pytest.mark.parametrize("is_train", [False, True])
def test_reads_what_the_component_has_put_on_the_docs(
    nlp, elmo, listener, is_train, monkeypatch
):
    asked = counts(elmo, monkeypatch)
    docs = [nlp(text) for text in TEXTS]
    Xs, backprop = listener(docs, is_train=is_train)
    for doc, X in zip(docs, Xs):
        np.testing.assert_array_equal(X, doc._.elmo)
        assert X.shape == (len(doc), 3, 12)
    assert backprop(Xs) == []
    assert asked == []


@pytest.mark.parametrize("is_train", [False, True])
def test_asks_the_component_for_docs_without_vectors_and_for_no_others(
    nlp, elmo, listener, is_train, monkeypatch
):
    wanted = [nlp(text)._.elmo for text in TEXTS]
    asked = counts(elmo, monkeypatch)
    docs = [nlp(TEXTS[0]), *(nlp.make_doc(text) for text in TEXTS[1:])]
    for _ in range(2):
        for X, right in zip(listener(docs, is_train=is_train)[0], wanted):
            np.testing.assert_allclose(X, right, rtol=1e-5, atol=1e-6)
    assert asked == [2]  # the blank one and the last; the empty one needs nothing


@pytest.mark.parametrize("lost", ["disconnected", "disabled", "removed"])
def test_without_its_component_training_fails_and_prediction_warns_once(
    lost, bilm_config
):
    nlp = spacy.blank("xx")
    elmo = nlp.add_pipe("elmo", config={"model": bilm_config()})
    listener = ELMoListener("elmo")
    elmo.add_listener(listener, "ner")
    listener.initialize()
    docs = [nlp.make_doc("She made a play."), nlp.make_doc("")]
    if lost == "disconnected":
        assert elmo.remove_listener(listener, "ner")
    elif lost == "disabled":
        nlp.disable_pipe("elmo")
    else:
        nlp.remove_pipe("elmo")
        del elmo
    with pytest.raises(ValueError, match="ELMO031.*'elmo'"):
        listener(docs, is_train=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            Xs = listener.predict(docs)
            listener.predict([nlp.make_doc("")])
    assert ["ELMOW001" in str(w.message) for w in found] == [True]
    assert [X.shape for X in Xs] == [(5, 3, 12), (0, 3, 12)]
    assert not Xs[0].any()


def test_empty_docs_need_no_component(nlp):
    listener = ELMoListener("elmo")
    listener.set_dim("nL", 3)
    listener.set_dim("nO", 12)
    docs = [nlp.make_doc(""), nlp.make_doc("")]
    for is_train in (False, True):
        assert [X.shape for X in listener(docs, is_train)[0]] == [(0, 3, 12)] * 2
        assert listener([], is_train)[0] == []


def test_before_initialize_there_is_a_clear_error(nlp):
    tagger = add_task(nlp, "tagger")
    tagger.add_label("X")
    with pytest.raises(ValueError, match=r"ELMO039.*nlp.initialize\(\)"):
        nlp("She made a play.")
    with pytest.raises(ValueError, match="ELMO039"):  # the weights are read by now
        nlp("She made a play.")


def test_initialize_learns_the_dimensions_from_the_component(nlp, elmo):
    listener = ELMoListener()
    with pytest.raises(ValueError, match="ELMO032.*'\\*'"):
        listener.initialize()
    elmo.add_listener(listener, "ner")
    assert not listener.has_dim("nO")  # the weights were not read yet
    listener.initialize()
    assert (listener.get_dim("nL"), listener.get_dim("nO")) == (3, 12)


def test_a_retokenized_doc_is_an_error_and_not_a_neighbors_vector(nlp, listener):
    doc = nlp("She made a play in New York.")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[5:7])
    with pytest.raises(ValueError, match="ELMO030.* 8 rows.* 7 tokens"):
        listener.predict([doc])


@pytest.mark.parametrize(
    "upstream, name, wanted",
    [
        ("*", "elmo", True),
        ("elmo", "elmo", True),
        ("elmo", "elmo_de", False),
        ("elmo_de", "elmo", False),
    ],
)
def test_listens_to_its_upstream_only(upstream, name, wanted):
    assert is_listener_of(ELMoListener(upstream), name) is wanted
    assert not is_listener_of(spacy.blank("en").add_pipe("tagger").model, name)


def test_a_listener_is_listed_once_and_can_be_removed_once(elmo, listener):
    elmo.add_listener(listener, "ner")
    other = ELMoListener("elmo")
    elmo.add_listener(other, "tagger")
    assert elmo.listeners == [listener, other]
    assert elmo.listening_components == ["ner", "tagger"]
    assert elmo.remove_listener(listener, "ner")
    assert not elmo.remove_listener(listener, "ner")
    assert elmo.listening_components == ["tagger"]


COPIES = {
    "copy": lambda listener: listener.copy(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda listener: pickle.loads(pickle.dumps(listener)),
    "bytes": lambda listener: ELMoListener("elmo").from_bytes(listener.to_bytes()),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_keep_what_they_are_and_leave_the_biLM_behind(
    how, nlp, listener, monkeypatch
):
    def fail(self, *args):
        raise AssertionError("the biLM was copied")

    doc = nlp("She made a play.")
    for name in ("copy", "__getstate__", "to_bytes"):
        monkeypatch.setattr(BiLMShim, name, fail, raising=False)
    copied = COPIES[how](listener)
    assert is_listener_of(copied, "elmo") and not is_listener_of(copied, "other")
    assert copied.get_dim("nO") == 12
    assert len(pickle.dumps(copied)) < 2000
    np.testing.assert_array_equal(copied.predict([doc])[0], doc._.elmo)
    # In another pipeline it has no component until that has one
    blank = nlp.make_doc("She made a play.")
    if "copy" in how:
        X = copied([blank], is_train=True)[0][0]
        np.testing.assert_allclose(X, doc._.elmo, rtol=1e-5, atol=1e-6)
    else:
        with pytest.raises(ValueError, match="ELMO031"):
            copied([blank], is_train=True)
