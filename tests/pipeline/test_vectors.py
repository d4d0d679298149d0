import pickle

import numpy as np
import pytest
import spacy
from spacy.cli import fill_config
from spacy.tokens import Doc, DocBin

from spacy_elmo import set_vector_hooks

TEXT = "Last year Eleanor wrote a short play for Chicago."
OTHER = "They play on the street."
MIX = [0.2, 0.3, 0.5]
SELECTED = [
    ("top", lambda X: X[:, 2]),
    ("mean", lambda X: X.mean(axis=1)),
    (0, lambda X: X[:, 0]),
    (1, lambda X: X[:, 1]),
    (MIX, lambda X: 0.2 * X[:, 0] + 0.3 * X[:, 1] + 0.5 * X[:, 2]),
]


def assert_same(found, wanted):
    assert found.shape == wanted.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def cosine(x, y):
    return x @ y / (np.linalg.norm(x) * np.linalg.norm(y))


def test_hooks_are_set_for_a_doc(nlp):
    with pytest.raises(ValueError, match="ELMO038.*doc must be a Doc"):
        set_vector_hooks(nlp(TEXT)[:2])


@pytest.fixture
def make_nlp(bilm_config):
    """make_nlp(vectors) -> a pipeline of nothing but `elmo`"""

    def make(vectors, **arguments):
        nlp = spacy.blank("xx")
        config = {"model": bilm_config(**arguments), "vectors": vectors}
        nlp.add_pipe("elmo", config=config)
        return nlp

    return make


@pytest.fixture
def nlp(make_nlp):
    return make_nlp("top")


@pytest.mark.parametrize("layer, select", SELECTED)
def test_vectors_are_those_of_a_layer_or_a_mix(layer, select, make_nlp):
    doc, other = make_nlp(layer).pipe([TEXT, OTHER])
    X, Y = select(doc._.elmo), select(other._.elmo)
    assert_same(doc[6].vector, X[6])
    assert_same(doc[2:5].vector, X[2:5].mean(axis=0))
    assert_same(doc.vector, X.mean(axis=0))
    for part in (doc, doc[2:5], doc[6]):
        assert part.has_vector
        assert part.vector_norm == pytest.approx(np.linalg.norm(part.vector), 1e-5)
    pairs = [(doc[6], other[1]), (doc[6], other), (doc[2:5], other[1:3]), (doc, other)]
    for part, compared in pairs:
        wanted = cosine(part.vector, compared.vector)
        assert part.similarity(compared) == pytest.approx(wanted, abs=1e-5)
    # The same word in two contexts, but for layer 0
    assert (doc[6].similarity(other[1]) > 0.999) == (layer == 0)
    assert doc[6].similarity(other[1]) == pytest.approx(cosine(X[6], Y[1]), abs=1e-5)


def test_without_the_argument_spacy_has_its_own_vectors(make_nlp):
    doc = make_nlp(None)(TEXT)
    assert not doc.user_hooks and not doc.user_token_hooks and not doc.user_span_hooks
    assert not doc[6].has_vector and not doc.has_vector


def test_white_space_and_empty_docs_have_zeros(nlp):
    doc, empty = nlp("One\n\ntwo "), nlp("")
    assert [token.has_vector for token in doc] == [not t.is_space for t in doc]
    assert not doc[1].vector.any() and doc[1].vector.shape == (12,)
    assert doc[1].similarity(doc[0]) == doc[0].similarity(doc[1]) == 0.0
    assert doc.has_vector and not doc[1:2].has_vector and not doc[1:1].has_vector
    for nothing in (empty, doc[1:1]):
        assert nothing.vector.shape == (12,) and not nothing.vector.any()
        assert not nothing.has_vector and nothing.similarity(doc) == 0.0


def test_a_vector_does_not_hold_the_layers_of_its_doc(nlp):
    doc = nlp(TEXT)
    doc[6].vector[:] = 0
    assert doc[6].vector.any()
    assert doc[6].vector.base is None


def test_docs_keep_their_vectors_where_hooks_can_follow(nlp):
    doc = nlp(TEXT)
    for other in (doc.copy(), pickle.loads(pickle.dumps(doc))):
        assert_same(other[6].vector, doc[6].vector)
        assert other.similarity(doc) == pytest.approx(1)


def test_docs_that_came_as_bytes_get_their_vectors_back(nlp):
    doc = nlp(TEXT)
    with pytest.warns(UserWarning, match="W109"):
        came = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    docbin = DocBin(store_user_data=True, docs=[doc])
    for other in (came, *docbin.get_docs(nlp.vocab)):
        assert not other[6].has_vector
        assert set_vector_hooks(other, "top") is other
        assert_same(other[6].vector, doc[6].vector)
        assert doc.similarity(other) == pytest.approx(1)


def test_docs_of_other_processes_get_their_vectors_back(nlp):
    wanted = nlp(TEXT)[6].vector
    for doc in nlp.pipe([TEXT] * 3, n_process=2, batch_size=1):
        assert not doc.has_vector
        assert_same(set_vector_hooks(doc, "top")[6].vector, wanted)


def test_hooks_can_be_set_on_docs_of_any_pipeline(make_nlp):
    doc = make_nlp(None)(TEXT)
    doc.user_hooks["vector"] = lambda doc: "to be replaced"
    doc.user_hooks["sentiment"] = lambda doc: 3.0
    assert_same(set_vector_hooks(doc, 1)[6].vector, doc._.elmo[6, 1])
    assert doc.vector.shape == (12,) and doc.user_hooks["sentiment"](doc) == 3.0
    assert_same(set_vector_hooks(doc, np.int64(1))[6].vector, doc._.elmo[6, 1])
    with pytest.raises(ValueError, match="ELMO124.*True"):
        set_vector_hooks(doc, True)
    # Once more, by another layer
    assert_same(set_vector_hooks(doc)[6].vector, doc._.elmo[6, 2])


def test_without_its_layers_a_doc_has_spacys_vectors_again(nlp):
    for ask in (
        lambda doc: doc.vector,
        lambda doc: doc[6].vector_norm,
        lambda doc: doc[2:5].has_vector,
        lambda doc: doc[2:5].as_doc().vector,
    ):
        doc = nlp(TEXT)
        doc._.elmo = None
        assert not np.any(ask(doc))
        assert not doc.user_hooks and not doc.user_span_hooks
    doc._.elmo = nlp(TEXT)._.elmo
    assert_same(set_vector_hooks(doc)[6].vector, nlp(TEXT)[6].vector)
    nlp.add_pipe("doc_cleaner", config={"attrs": {"_.elmo": None}})
    cleaned = nlp(TEXT)
    assert not cleaned.has_vector and cleaned[2:5].as_doc().text == "Eleanor wrote a "
    with pytest.warns(UserWarning, match="W007|W008"):
        assert cleaned.similarity(nlp(OTHER)) == 0.0


def test_a_span_as_a_doc_has_the_vector_of_the_span(nlp):
    doc = nlp(TEXT)
    span = doc[2:5].as_doc()
    assert doc[2:5].similarity(span) == pytest.approx(1)
    assert_same(span.vector, doc[2:5].vector)
    # and the Doc that it comes from has its hooks still
    assert doc[2:5].has_vector and doc.user_hooks


def test_after_retokenization_there_is_an_error_and_no_neighbors_vector(nlp):
    doc = nlp(TEXT)
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[5:7])
    for part in (doc, doc[2:5], doc[5]):
        with pytest.raises(ValueError, match="ELMO030"):
            _ = part.vector


def test_similarity_with_what_has_no_such_vector(nlp, make_nlp, other_weights):
    doc = nlp(TEXT)
    with pytest.raises(ValueError, match="ELMO125.*Token.*12.*Lexeme has none"):
        doc[6].similarity(nlp.vocab["play"])
    other = make_nlp("top", weights=other_weights)(TEXT)
    with pytest.raises(ValueError, match="ELMO125.*Doc.*12.*Span .* another biLM"):
        doc.similarity(other[1:3])
    layers, other._.elmo = doc._.elmo, None
    other.user_data.clear()
    with pytest.raises(ValueError, match="ELMO125.*Doc.*12.*Doc has none"):
        doc.similarity(other)
    other._.elmo = layers[..., :8]
    with pytest.raises(ValueError, match="ELMO125.*Doc.*12.*Span .* one of width 8"):
        doc.similarity(other[1:3])


def test_layers_are_not_compared_with_static_vectors(nlp):
    static = Doc(nlp.vocab, words=["play"])
    nlp.vocab.set_vector("play", np.ones(12, np.float32))
    with pytest.raises(ValueError, match="ELMO125.*Token has none"):
        nlp(TEXT)[6].similarity(static[0])


def test_layers_of_two_biLMs_are_not_compared(make_nlp, calm_weights):
    doc, other = (make_nlp("top", **w)(TEXT) for w in ({}, {"weights": calm_weights}))
    assert doc[6].vector.shape == other[6].vector.shape
    with pytest.raises(ValueError, match="ELMO125.*one of another biLM"):
        doc[6].similarity(other[6])


def test_white_space_is_none_in_any_vocab(nlp):
    doc = nlp("One\n\ntwo")
    docbin = DocBin(store_user_data=True, docs=[doc])
    (other,) = docbin.get_docs(spacy.vocab.Vocab())
    set_vector_hooks(other)
    assert [token.has_vector for token in other] == [True, False, True]


@pytest.mark.parametrize("layer", ["first", -1, [1, 1, 1], [0.5, 0.6], [1.5, -0.5], []])
def test_layers_that_cannot_be_are_refused_at_once(layer, make_nlp):
    with pytest.raises(ValueError, match="ELMO124.*'top', 'mean'.*sum to 1"):
        make_nlp(layer)


def test_weights_that_are_no_numbers_are_refused(nlp):
    with pytest.raises(ValueError, match=r"ELMO124.*\['a'\] is neither"):
        set_vector_hooks(nlp(TEXT), ["a"])


@pytest.mark.parametrize("layer", [3, [0.5, 0.5]])
def test_layers_that_the_weights_do_not_have_are_refused(layer, make_nlp):
    nlp = make_nlp(layer)
    for use in (nlp.initialize, lambda: nlp(TEXT)):
        with pytest.raises(ValueError, match=r"ELMO124.*\(3 layers\)"):
            use()


@pytest.mark.parametrize("vectors", [2, [0.2, 0.3, 0.5]])
def test_layers_of_a_second_elmo_may_be_too_few(vectors, bilm_config, other_weights):
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", config={"model": bilm_config(), "vectors": vectors})
    other = {"model": bilm_config(other_weights)}
    nlp.add_pipe("elmo", name="other", config=other)
    doc = nlp("A play.")
    for part in (doc, doc[:2], doc[1]):
        with pytest.raises(ValueError, match=r"ELMO124.*2 layers"):
            assert part.vector is None


def test_a_mix_may_be_an_array(nlp):
    wanted = set_vector_hooks(nlp(TEXT), MIX)
    found = set_vector_hooks(nlp(TEXT), np.array(MIX))
    assert_same(found[6].vector, wanted[6].vector)


@pytest.mark.parametrize("layer", ["top", 1, MIX])
def test_pipelines_are_saved_with_the_choice(layer, make_nlp, tmp_path):
    nlp = make_nlp(layer)
    nlp.to_disk(tmp_path)
    wanted = nlp(TEXT)
    for other in (spacy.load(tmp_path), pickle.loads(pickle.dumps(nlp))):
        assert_same(other(TEXT)[6].vector, wanted[6].vector)


def test_configs_from_before_the_argument_load_and_are_filled(make_nlp, tmp_path):
    old = make_nlp(None).config
    del old["components"]["elmo"]["vectors"]
    old.to_disk(tmp_path / "old.cfg")
    assert spacy.util.load_model_from_config(old)(TEXT)._.elmo is not None
    filled = fill_config(tmp_path / "new.cfg", tmp_path / "old.cfg", silent=True)[1]
    assert filled["components"]["elmo"]["vectors"] is None
