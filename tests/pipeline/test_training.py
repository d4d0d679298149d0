import copy
import gc
import pickle
import warnings

import numpy as np
import pytest
import spacy
import torch
from reference import random_weights, write_weights
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from tasks import ROOT, TASKS, add_task, listener_config, make_examples
from thinc.api import Adam

from spacy_elmo.layers.doc_encoder import get_shim
from spacy_elmo.layers.mix import get_mix

TOK2VEC = {
    "@architectures": "spacy.Tok2Vec.v2",
    "embed": {
        "@architectures": "spacy_elmo.EmbedWithELMo.v1",
        "width": 16,
        "embed": {
            "@architectures": "spacy.MultiHashEmbed.v2",
            "width": 16,
            "attrs": ["NORM", "SHAPE"],
            "rows": [100, 100],
            "include_static_vectors": False,
        },
        "elmo": listener_config(dropout=0.1),
    },
    "encode": {
        "@architectures": "spacy.MaxoutWindowEncoder.v2",
        "width": 16,
        "depth": 1,
        "window_size": 1,
        "maxout_pieces": 2,
    },
}
LISTENER = {"listener": "model.tok2vec", "nested": "model.tok2vec.embed.elmo"}


def mix_of(pipe):
    (mix,) = (node for node in pipe.model.walk() if node.name == "elmo-mix")
    return mix


def s_of(pipe):
    return get_mix(mix_of(pipe))[0].copy()


def scores_of(nlp, name):
    """The scores of a tagger's model, which show any change."""
    doc = nlp.make_doc("She made a play in May.")
    nlp.get_pipe(nlp.pipe_names[0])(doc)
    return nlp.get_pipe(name).model.predict([doc])[0]


def train(nlp, examples, n_updates, **options):
    optimizer = options.pop("sgd", None) or nlp.initialize(lambda: examples)
    history = []
    for _ in range(n_updates):
        history.append(nlp.update(examples, sgd=optimizer, **options))
    return optimizer, history


@pytest.fixture(scope="module")
def trained_folder(bilm_config, tmp_path_factory):
    """elmo, and a tagger and NER that listen to it, after enough updates: with fewer,
    two tags can be so close that rounding decides between them.
    """
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", config={"model": bilm_config()})
    add_task(nlp, "tagger", dropout=0.1)
    add_task(nlp, "ner", tok2vec=TOK2VEC)
    examples = make_examples(nlp)
    optimizer = nlp.initialize(lambda: examples, sgd=Adam(0.01))
    train(nlp, examples, 10, sgd=optimizer)
    folder = tmp_path_factory.mktemp("trained")
    nlp.to_disk(folder)
    return folder


@pytest.fixture
def trained(trained_folder):
    """A pipeline of its own for each test, which may change it."""
    return spacy.load(trained_folder)


def test_a_tagger_and_ner_learn_from_one_elmo(nlp, monkeypatch):
    add_task(nlp, "tagger", tok2vec=TOK2VEC)
    add_task(nlp, "ner", tok2vec=TOK2VEC)
    examples = make_examples(nlp)
    optimizer = nlp.initialize(lambda: examples, sgd=Adam(0.01))
    annotated, elmo = [], nlp.get_pipe("elmo")
    annotate = elmo.annotate
    monkeypatch.setattr(elmo, "annotate", lambda d: (annotated.append(1), annotate(d)))
    _, history = train(nlp, examples, 40, sgd=optimizer)
    assert len(annotated) == 40  # once an update, for both
    assert set(history[0]) == {"tagger", "ner"}
    for name in history[0]:
        assert history[-1][name] < 0.5 * history[0][name]
    scores = nlp.evaluate(examples)
    assert scores["tag_acc"] > 0.9
    assert scores["ents_f"] > 0.8
    # Each has a mix of its own
    assert not np.allclose(s_of(nlp.get_pipe("tagger")), s_of(nlp.get_pipe("ner")))


@pytest.mark.parametrize("task", TASKS)
def test_components_train_and_load_with_a_listener(task, nlp, tmp_path):
    pipe = add_task(nlp, task)
    examples = make_examples(nlp, 10)
    _, history = train(nlp, examples, 2)
    assert np.isfinite(history[-1][task])
    assert abs(s_of(pipe) - 1 / 3).max() > 0.001
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    np.testing.assert_array_equal(s_of(loaded.get_pipe(task)), s_of(pipe))
    for example in examples[:3]:
        doc, again = nlp(example.text).to_json(), loaded(example.text).to_json()
        assert again.pop("cats", {}) == pytest.approx(doc.pop("cats", {}), rel=1e-4)
        assert again == doc


def test_training_without_a_listener_warns(nlp):
    """As `spacy init config --pipeline elmo,tagger` has it."""
    nlp.add_pipe("tagger")
    with pytest.warns(UserWarning, match="ELMOW007.*'elmo'"):
        train(nlp, make_examples(nlp, 2), 1)


def test_the_mix_moves_within_the_steps_that_people_train(nlp):
    tagger = add_task(nlp, "tagger", l2=0.0)
    optimizer, _ = train(nlp, make_examples(nlp), 1)
    s, gamma = get_mix(mix_of(tagger))
    s = s.copy()
    train(nlp, make_examples(nlp), 50, sgd=optimizer)
    moved = abs(s_of(tagger) - s).max()
    assert moved > 0.03
    assert abs(get_mix(mix_of(tagger))[1] / gamma - 1) > 0.01
    fixed = spacy.blank("xx")
    fixed.add_pipe("elmo", source=nlp)
    tagger = add_task(fixed, "tagger", trainable_mix=False)
    train(fixed, make_examples(fixed), 2)
    np.testing.assert_allclose(s_of(tagger), 1 / 3, rtol=1e-6)


def own_bilm(weights):
    bilm = {"@architectures": "spacy_elmo.BiLM.v1", "weights": str(weights)}
    elmo = {"@architectures": "spacy_elmo.ELMo.v1", "bilm": bilm, "trainable": True}
    return {**TOK2VEC, "embed": {**TOK2VEC["embed"], "elmo": elmo}}


def test_a_shared_tok2vec_fine_tunes_its_biLM(tiny_weights):
    nlp = spacy.blank("xx")
    nlp.add_pipe("tok2vec", config={"model": own_bilm(tiny_weights)})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16}
    for task in ("tagger", "ner"):
        add_task(nlp, task, tok2vec=listener)
    digests = []
    for n in (0, 5):
        _, losses = train(nlp, make_examples(nlp), n)
        model = nlp.get_pipe("tok2vec").model
        digests += [shim.digest for node in model.walk() for shim in node.shims]
    assert digests[0] != digests[1]
    assert losses[-1]["tagger"] < losses[0]["tagger"]


def test_initialize_undoes_fine_tuning(tiny_weights):
    """Else the folds of a cross-validation would know each other's texts."""
    nlp = spacy.blank("xx")
    tagger = add_task(nlp, "tagger", tok2vec=own_bilm(tiny_weights))
    (shim,) = (shim for node in tagger.model.walk() for shim in node.shims)
    examples = make_examples(nlp, 4)
    train(nlp, examples, 0)
    digest = shim.digest
    train(nlp, examples, 1)
    assert shim.digest != digest
    train(nlp, examples, 0)
    assert shim.digest == digest


def test_a_fine_tuned_biLM_rehearses(tiny_weights):
    nlp = spacy.blank("xx")
    tagger = add_task(nlp, "tagger", tok2vec=own_bilm(tiny_weights))
    (shim,) = (shim for node in tagger.model.walk() for shim in node.shims)
    train(nlp, make_examples(nlp), 1)
    optimizer = nlp.resume_training()  # what it knows now is rehearsed
    nlp.update(make_examples(nlp), sgd=optimizer)
    digest = shim.digest
    nlp.rehearse(make_examples(nlp), sgd=optimizer)
    assert shim.digest != digest


def test_a_config_given_to_load_changes_the_mix(trained, tmp_path):
    trained.to_disk(tmp_path)
    at = f"components.tagger.{LISTENER['listener']}"
    changed = {f"{at}.layers": "top", f"{at}.trainable_mix": False}
    loaded = spacy.load(tmp_path, config=changed)
    s, gamma = get_mix(mix_of(loaded.get_pipe("tagger")))
    assert s.tolist() == [0, 0, 1]
    loaded.update(make_examples(loaded), sgd=loaded.resume_training())
    assert get_mix(mix_of(loaded.get_pipe("tagger")))[1] == gamma


def test_a_config_given_to_load_unfreezes_a_biLM(tiny_weights, tmp_path):
    nlp = spacy.blank("xx")
    frozen = own_bilm(tiny_weights)
    frozen["embed"]["elmo"]["trainable"] = False
    add_task(nlp, "tagger", tok2vec=frozen)
    train(nlp, make_examples(nlp), 1)
    nlp.to_disk(tmp_path)
    at = f"components.tagger.{LISTENER['nested']}.trainable"
    loaded = spacy.load(tmp_path, config={at: True})
    before = loaded.get_pipe("tagger").model.to_dict()["shims"]
    loaded.update(make_examples(loaded), sgd=loaded.resume_training())
    assert loaded.get_pipe("tagger").model.to_dict()["shims"] != before


def test_averages_reach_the_mix_and_go_again(nlp):
    tagger = add_task(nlp, "tagger")
    optimizer = nlp.initialize(
        lambda: make_examples(nlp), sgd=Adam(0.001, use_averages=True)
    )
    train(nlp, make_examples(nlp), 5, sgd=optimizer)
    s = s_of(tagger)
    with nlp.use_params(optimizer.averages):
        averaged = s_of(tagger)
        assert nlp("She made a play.")[0].tag_
    assert not np.allclose(averaged, s, atol=1e-5)
    assert abs(averaged - 1 / 3).max() < abs(s - 1 / 3).max()
    np.testing.assert_array_equal(s_of(tagger), s)


def test_rehearse(trained):
    trained.resume_training()
    for _ in range(3):  # spaCy shuffles the components
        examples = [Example(eg.x, eg.x.copy()) for eg in make_examples(trained, 4)]
        losses = trained.rehearse(examples)
        assert np.isfinite([losses["tagger"], losses["ner"]]).all()


def test_each_rehearsal_changes_the_component(nlp):
    """spaCy shuffles the components and applies the gradients of the last one."""
    add_task(nlp, "tagger")
    optimizer, _ = train(nlp, make_examples(nlp, 4), 1)
    nlp.resume_training(sgd=optimizer)
    nlp.update(make_examples(nlp, 4), sgd=optimizer)
    scores = [scores_of(nlp, "tagger")]
    for _ in range(8):
        nlp.rehearse(make_examples(nlp, 4), sgd=optimizer)
        scores.append(scores_of(nlp, "tagger"))
    for before, after in zip(scores, scores[1:]):
        assert not np.array_equal(before, after)


@pytest.mark.parametrize("name", ["tagger", "ner"])
def test_a_component_can_be_updated_alone(trained, name):
    pipe, examples = trained.get_pipe(name), make_examples(trained)
    before = s_of(pipe)
    losses = pipe.update(examples, sgd=trained.create_optimizer())
    assert losses[name] > 0
    assert not np.array_equal(s_of(pipe), before)


@pytest.mark.parametrize("frozen", [[], ["elmo"]])
@pytest.mark.parametrize("annotates", [[], ["elmo"]])
def test_frozen_or_annotating_the_biLM_reads_a_sentence_once(
    nlp, frozen, annotates, monkeypatch
):
    add_task(nlp, "tagger", tok2vec=TOK2VEC)
    optimizer = nlp.initialize(lambda: make_examples(nlp))
    bilm, n_read = get_shim(nlp.get_pipe("elmo").model).bilm, []
    encode = bilm.encode_ids

    def count(table, ids, **kwargs):
        n_read.append(len(ids))
        return encode(table, ids, **kwargs)

    monkeypatch.setattr(bilm, "encode_ids", count)
    how = {"sgd": optimizer, "exclude": frozen, "annotates": annotates}
    for _ in range(2):  # frozen and annotating, it is one batch late
        nlp.update(make_examples(nlp), **how)
    assert n_read[0] >= len(make_examples(nlp))
    n_read.clear()
    nlp.update(make_examples(nlp), **how)
    assert not any(n_read)


@pytest.mark.parametrize("words", [[], [" "]])
def test_an_all_empty_batch_is_no_error(trained, words):
    docs = [Doc(trained.vocab, words=words) for _ in range(2)]
    losses = trained.update([Example(doc, doc.copy()) for doc in docs])
    assert np.isfinite([*losses.values()]).all()
    assert [len(doc) for doc in trained.pipe(docs)] == [len(words)] * 2


def test_gradients_accumulate(trained):
    tagger = trained.get_pipe("tagger")
    before = s_of(tagger)
    for _ in range(2):
        trained.update(make_examples(trained, 4), sgd=False)
    np.testing.assert_array_equal(s_of(tagger), before)
    tagger.finish_update(trained.create_optimizer())
    assert not np.array_equal(s_of(tagger), before)


@pytest.mark.parametrize("how", ["disabled", "removed"])
def test_without_elmo_training_fails_and_prediction_warns_once(trained, how):
    examples = make_examples(trained)
    if how == "disabled":
        trained.disable_pipe("elmo")
    else:
        trained.remove_pipe("elmo")
    with pytest.raises(ValueError, match="ELMO031.*'elmo'"):
        trained.update(examples)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        trained("She made a play.")
        list(trained.pipe(["She made a play."] * 3))
    assert ["ELMOW001" in str(w.message) for w in found] == [True]
    if how == "disabled":
        trained.enable_pipe("elmo")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trained("She made a play.")
            trained.update(examples)


def test_docs_of_another_vocab_are_named_as_a_reason(trained):
    tagger = trained.get_pipe("tagger")
    with pytest.raises(ValueError, match="ELMO031.*another vocab"):
        tagger.update(make_examples(spacy.blank("xx"), 2))


def test_a_listener_without_elmo_cannot_be_initialized(nlp):
    add_task(nlp, "tagger", upstream="other")
    with pytest.raises(ValueError, match="ELMO032.*'other'"):
        nlp.initialize(lambda: make_examples(nlp))
    late = spacy.blank("xx")
    add_task(late, "tagger")
    late.add_pipe("elmo", source=nlp)  # behind its listener
    with pytest.raises(ValueError, match="ELMO032"):
        late.initialize(lambda: make_examples(late))


@pytest.mark.parametrize("weights", ["other", "same geometry"])
@pytest.mark.parametrize(
    "order", [["a", "tagger", "b", "tagger2"], ["a", "b", "tagger", "tagger2"]]
)
def test_two_elmo_components_with_weights_of_their_own(
    order, weights, bilm_config, other_weights, calm_weights, tmp_path
):
    nlp = spacy.blank("xx")
    weights = {"a": other_weights if weights == "other" else calm_weights}
    for name in order:
        if name.startswith("tagger"):
            upstream = {"tagger": "a", "tagger2": "b"}[name]
            add_task(nlp, "tagger", name=name, upstream=upstream)
        else:
            config = {"model": bilm_config(weights[name])} if name == "a" else {}
            config = config or {"model": bilm_config()}
            nlp.add_pipe("elmo", name=name, config=config)
    a, b = nlp.get_pipe("a"), nlp.get_pipe("b")
    examples = make_examples(nlp, 5)
    train(nlp, examples, 2)
    assert (a.listening_components, b.listening_components) == (["tagger"], ["tagger2"])
    # Each listener reads the vectors of its own component, also in another process
    for pipeline in (nlp, pickle.loads(pickle.dumps(nlp))):
        doc = pipeline(examples[0].text)
        for elmo, name in (("a", "tagger"), ("b", "tagger2")):
            model = pipeline.get_pipe(name).model
            listener = model.get_ref("tok2vec").get_ref("listener")
            wanted = pipeline.get_pipe(elmo).predict([doc])[0]
            np.testing.assert_allclose(
                listener.predict([doc])[0], wanted, rtol=1e-5, atol=1e-6
            )
            assert mix_of(pipeline.get_pipe(name)).get_dim("nO") == wanted.shape[2]
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    texts = [eg.text for eg in examples]
    for doc, again in zip(nlp.pipe(texts), loaded.pipe(texts)):
        assert doc.to_json() == again.to_json()
        np.testing.assert_allclose(again._.elmo, doc._.elmo, rtol=1e-5, atol=1e-6)
    # spaCy leaves the contexts of averages first in, first out
    with nlp.use_params({("key", "of nobody"): np.zeros(1)}):
        assert nlp(texts[0])[0].tag_
    assert torch.is_grad_enabled()
    # The vectors of b are not taken for those of a
    nlp.disable_pipe("a")
    with pytest.raises(ValueError, match="ELMO031.*'a'"):
        nlp.update(examples)


def test_vectors_of_other_weights_are_an_error(trained, other_weights, bilm_config):
    trained.remove_pipe("elmo")
    config = {"model": bilm_config(other_weights)}
    trained.add_pipe("elmo", config=config, first=True)
    with pytest.raises(ValueError, match=r"ELMO033.*\(6, 2, 8\).* 3 layers.* 12"):
        trained("She made a big play.")


@pytest.mark.parametrize("upstream", ["elmo", "*"])
def test_a_renamed_elmo_is_heard(nlp, upstream, tmp_path):
    tagger = add_task(nlp, "tagger", upstream=upstream)
    examples = make_examples(nlp, 5)
    optimizer, _ = train(nlp, examples, 2)
    wanted = scores_of(nlp, "tagger")
    nlp.rename_pipe("elmo", "bilm")
    np.testing.assert_allclose(scores_of(nlp, "tagger"), wanted, rtol=1e-4, atol=1e-7)
    before = s_of(tagger)
    nlp.update(examples, sgd=optimizer)
    assert not np.array_equal(s_of(tagger), before)
    wanted = scores_of(nlp, "tagger")
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    np.testing.assert_allclose(
        scores_of(loaded, "tagger"), wanted, rtol=1e-4, atol=1e-7
    )
    if upstream == "elmo":
        # As with spaCy's tok2vec, the config still has the old name.
        with pytest.raises(ValueError, match="ELMO031.*'upstream' to its new name"):
            loaded.get_pipe("tagger").update(make_examples(loaded))
        at = f"components.tagger.{LISTENER['listener']}.upstream"
        renamed = spacy.load(tmp_path, config={at: "bilm"})
        assert renamed.get_pipe("bilm").listening_components == ["tagger"]
        renamed.get_pipe("tagger").update(make_examples(renamed, 5))
        renamed.replace_listeners("bilm", "tagger", ["model.tok2vec"])


def test_a_renamed_listening_component_is_known_by_its_new_name(trained):
    trained.rename_pipe("tagger", "pos_tagger")
    elmo = trained.get_pipe("elmo")
    assert sorted(elmo.listening_components) == ["ner", "pos_tagger"]
    trained.update(make_examples(trained))


@pytest.mark.parametrize("name", ["tagger", "ner"])
@pytest.mark.parametrize("keep_elmo", [True, False])
def test_replaced_listeners_predict_the_same_and_load(
    trained, name, keep_elmo, tmp_path
):
    path = LISTENER["nested" if name == "ner" else "listener"]
    texts = [eg.text for eg in make_examples(trained)]
    wanted = [doc.to_json() for doc in trained.pipe(texts)]
    s = s_of(trained.get_pipe(name))
    trained.replace_listeners("elmo", name, [path])
    assert name not in trained.get_pipe("elmo").listening_components
    if not keep_elmo:
        other = {"tagger": "ner", "ner": "tagger"}[name]
        trained.replace_listeners(
            "elmo", other, [LISTENER["nested" if other == "ner" else "listener"]]
        )
        trained.remove_pipe("elmo")
    config = trained.config["components"][name]
    for key in path.split("."):
        config = config[key]
    assert config["@architectures"] == "spacy_elmo.ELMo.v1"
    assert config["dropout"] == 0.1 and "upstream" not in config
    assert [doc.to_json() for doc in trained.pipe(texts)] == wanted
    trained.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert [doc.to_json() for doc in loaded.pipe(texts)] == wanted
    np.testing.assert_array_equal(s_of(loaded.get_pipe(name)), s)
    # It can go on learning, of the mix that it had
    before = s_of(loaded.get_pipe(name))
    loaded.update(make_examples(loaded), sgd=loaded.resume_training())
    assert not np.array_equal(s_of(loaded.get_pipe(name)), before)


@pytest.mark.parametrize("at", ["", ".tok2vec", ".tok2vec.embed", ".tok2vec.encode"])
def test_a_path_around_a_listener_replaces_the_listener_in_it(trained, at, tmp_path):
    """spaCy's documentation shows "model.tok2vec", wherever in it the listener is."""
    texts = [eg.text for eg in make_examples(trained)]
    wanted = [doc.to_json() for doc in trained.pipe(texts)]
    for times in range(2):  # of a saved pipeline, too, and of two in one
        nlp = trained if not times else spacy.load(tmp_path / "first")
        if times:
            nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
        else:
            nlp.to_disk(tmp_path / "first")
        nlp.replace_listeners("elmo", "ner", [f"model{at}"])
        tok2vec = nlp.config["components"]["ner"]["model"]["tok2vec"]
        assert tok2vec["embed"]["embed"]["rows"] == [100, 100]
        assert tok2vec["embed"]["elmo"]["@architectures"] == "spacy_elmo.ELMo.v1"
        nlp.to_disk(tmp_path / "saved")
        for pipeline in (nlp, spacy.load(tmp_path / "saved")):
            assert [doc.to_json() for doc in pipeline.pipe(texts)] == wanted


@pytest.mark.parametrize("name", ["tagger", "morphologizer"])
def test_a_config_that_refers_to_the_replaced_one_still_loads(
    name, bilm_config, tmp_path
):
    """As configs/ud.cfg does."""
    first = spacy.blank("xx")
    first.add_pipe("elmo", config={"model": bilm_config()})
    for task in ("tagger", "morphologizer"):
        add_task(first, task, tok2vec=TOK2VEC)
    config, shared = first.config, "${components.tagger.model.tok2vec}"
    config["components"]["morphologizer"]["model"]["tok2vec"] = shared
    nlp = spacy.util.load_model_from_config(config)
    assert shared in nlp.config.to_str()
    train(nlp, make_examples(nlp), 2)
    wanted = scores_of(nlp, name)
    nlp.replace_listeners("elmo", name, ["model.tok2vec"])
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert len(loaded.get_pipe("elmo").listening_components) == 1
    np.testing.assert_allclose(scores_of(loaded, name), wanted, rtol=1e-4, atol=1e-7)


def test_replaced_listeners_keep_the_settings_of_each(nlp, tmp_path):
    """Two listeners in one component, each with its own path."""
    tok2vec = copy.deepcopy(TOK2VEC)
    tok2vec["embed"]["embed"] = listener_config(layers="top")
    add_task(nlp, "tagger", tok2vec=tok2vec)
    train(nlp, make_examples(nlp), 2)
    wanted = scores_of(nlp, "tagger")
    embed = "model.tok2vec.embed"
    nlp.replace_listeners("elmo", "tagger", [f"{embed}.embed", f"{embed}.elmo"])
    assert not nlp.get_pipe("elmo").listeners
    found = nlp.config["components"]["tagger"]["model"]["tok2vec"]["embed"]
    assert (found["embed"]["layers"], found["embed"]["dropout"]) == ("top", 0.2)
    assert (found["elmo"]["layers"], found["elmo"]["dropout"]) == ("all", 0.1)
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    np.testing.assert_allclose(
        scores_of(loaded, "tagger"), wanted, rtol=1e-4, atol=1e-7
    )


def test_listeners_are_replaced_beside_a_component_with_any_config(nlp):
    @Language.factory("has_a_name", default_config={"model": "some/name"})
    def make(nlp, name, model):
        return lambda doc: doc

    nlp.add_pipe("has_a_name")
    add_task(nlp, "tagger", tok2vec=TOK2VEC)
    train(nlp, make_examples(nlp), 2)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    assert not nlp.get_pipe("elmo").listeners


@pytest.mark.parametrize("place, warns", [({"after": "elmo"}, True), ({}, False)])
def test_a_bilm_of_its_own_that_reads_other_sentences_warns(nlp, place, warns):
    add_task(nlp, "tagger", tok2vec=TOK2VEC)
    nlp.add_pipe("sentencizer", **place)
    train(nlp, make_examples(nlp), 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    said = [str(w.message) for w in caught if "ELMOW016" in str(w.message)]
    assert bool(said) == warns and all("sentencizer" in text for text in said)


def test_listeners_of_another_elmo_are_not_replaced(nlp, bilm_config, tmp_path):
    nlp.add_pipe("elmo", name="other", config={"model": bilm_config()})
    tok2vec = copy.deepcopy(TOK2VEC)
    tok2vec["embed"]["embed"] = listener_config(upstream="other")
    tok2vec["embed"]["elmo"] = listener_config(upstream="elmo")
    tagger = add_task(nlp, "tagger", tok2vec=tok2vec)
    train(nlp, make_examples(nlp), 2)
    nlp.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    nlp.remove_pipe("elmo")
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    found = loaded.config["components"]["tagger"]["model"]["tok2vec"]["embed"]
    assert found["embed"]["upstream"] == "other"
    assert found["elmo"]["@architectures"] == "spacy_elmo.ELMo.v1"
    scores = [p.predict([nlp(" A play.")]) for p in (tagger, loaded.get_pipe("tagger"))]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-7)


def test_a_tok2vec_that_spacy_made_two_of_is_two_configs(nlp, tmp_path):
    """Its replace_listeners puts one object into both components' configs."""
    nlp.add_pipe("tok2vec", config={"model": TOK2VEC})
    width = TOK2VEC["encode"]["width"]
    shared = {"@architectures": "spacy.Tok2VecListener.v1", "width": width}
    for task in ("tagger", "morphologizer"):
        add_task(nlp, task, tok2vec=shared)
    train(nlp, make_examples(nlp), 2)
    for task in ("tagger", "morphologizer"):
        nlp.replace_listeners("tok2vec", task, ["model.tok2vec"])
    nlp.remove_pipe("tok2vec")
    wanted = scores_of(nlp, "morphologizer")
    nlp.replace_listeners("elmo", "morphologizer", ["model.tok2vec"])
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.get_pipe("elmo").listening_components == ["tagger"]
    np.testing.assert_allclose(
        scores_of(loaded, "morphologizer"), wanted, rtol=1e-4, atol=1e-7
    )


def test_a_listener_of_any_upstream_has_one(nlp, bilm_config):
    nlp.add_pipe("elmo", name="second", config={"model": bilm_config()})
    add_task(nlp, "tagger", upstream="*")
    nlp.initialize(lambda: make_examples(nlp))
    assert nlp.get_pipe("elmo").listening_components == []
    assert nlp.get_pipe("second").listening_components == ["tagger"]


def test_a_component_sourced_without_elmo_warns_from_the_start(trained):
    nlp = spacy.blank("xx")
    nlp.add_pipe("tagger", source=trained)
    doc = nlp.make_doc("She made a play in May.")
    for _ in range(2):
        with pytest.warns(UserWarning, match="ELMOW001"):
            scores = nlp.get_pipe("tagger").model.predict([doc])[0]
        assert doc._.elmo is None
        with pytest.raises(ValueError, match="ELMO031"):
            nlp.update(make_examples(nlp))
    # and where it comes from, it goes on
    trained.get_pipe("tagger").update(make_examples(trained))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.allclose(scores_of(trained, "tagger"), scores)


def test_what_is_sourced_with_its_elmo_is_trained_at_once(trained, tmp_path):
    """Once its source has gone; before, the two pipelines cannot be told apart."""
    trained.to_disk(tmp_path)
    source = spacy.load(tmp_path)
    nlp = spacy.blank("xx")
    for name in ("elmo", "tagger"):
        nlp.add_pipe(name, source=source)
    del source
    gc.collect()
    losses = nlp.update(make_examples(nlp), exclude=["elmo"])
    assert losses["tagger"] > 0


def test_a_doc_of_another_pipeline_does_not_cut_listeners_off(trained):
    wanted = scores_of(trained, "tagger")
    trained.get_pipe("elmo")(spacy.blank("xx")("She made a play."))
    doc = trained.make_doc("She made a play in May.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = trained.get_pipe("tagger").model.predict([doc])[0]
    np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-7)


def test_on_the_same_vocab_it_warns_when_the_source_has_gone(bilm_config):
    source = spacy.blank("xx")
    source.add_pipe("elmo", config={"model": bilm_config()})
    add_task(source, "tagger")
    train(source, make_examples(source), 1)
    nlp = spacy.blank("xx", vocab=source.vocab)
    tagger = nlp.add_pipe("tagger", source=source)
    wanted = scores_of(source, "tagger")
    doc = nlp.make_doc("She made a play in May.")
    np.testing.assert_allclose(
        tagger.model.predict([doc])[0], wanted, rtol=1e-5, atol=1e-7
    )
    del source
    gc.collect()
    with pytest.warns(UserWarning, match="ELMOW001"):
        tagger.model.predict([nlp.make_doc("She made a play in May.")])


def test_a_component_on_another_bilm_warns_until_it_has_learned_from_it(
    trained, bilm_config, tiny_options, tmp_path
):
    """Of the same shape, its vectors would be taken for those that it knows."""
    arrays = random_weights(tiny_options, seed=1)
    other = write_weights(tmp_path / "other", tiny_options, arrays)
    trained.to_disk(tmp_path / "trained")
    source = spacy.load(tmp_path / "trained")
    nlp = spacy.blank("xx")
    elmo = nlp.add_pipe("elmo", config={"model": bilm_config(other)})
    nlp.add_pipe("ner", source=source)
    digests = f"{source.get_pipe('elmo').digest}.*{elmo.digest}"
    with pytest.warns(UserWarning, match=f"ELMOW008.*'ner'.*{digests}"):
        nlp("She made a play in May.")
    with pytest.warns(UserWarning, match="ELMOW008"):
        nlp.update(make_examples(nlp), sgd=nlp.resume_training())
    nlp.to_disk(tmp_path / "again")
    again = spacy.load(tmp_path / "again")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for loaded in (nlp, again):
            loaded("She made a play in May.")
    with pytest.warns(UserWarning, match="ELMOW001"):
        source("She made a play in May.")  # the same NER


def test_layers_of_other_weights_are_not_taken(
    trained, bilm_config, tiny_options, tmp_path
):
    arrays = random_weights(tiny_options, seed=1)
    weights = write_weights(tmp_path / "other", tiny_options, arrays)
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", name="other", config={"model": bilm_config(weights)})
    nlp.add_pipe("tagger", source=trained)  # its upstream is "elmo"
    with pytest.warns(UserWarning, match="ELMOW001.*'elmo'"):
        nlp("She made a play in May.")


def test_a_component_before_its_elmo_does_not_hear_that_of_its_source(
    trained, bilm_config
):
    """In `spacy train` both share a vocab, and only this pipeline is saved."""
    nlp = spacy.blank("xx", vocab=trained.vocab)
    nlp.add_pipe("tagger", source=trained)
    nlp.add_pipe("elmo", config={"model": bilm_config()})
    with pytest.warns(UserWarning, match="ELMOW001"):
        nlp("She made a play in May.")
    with pytest.raises(ValueError, match="ELMO031"):
        nlp.update(make_examples(nlp), sgd=nlp.resume_training())


@pytest.mark.parametrize("held", [True, False])
def test_a_removed_elmo_is_gone_also_if_somebody_holds_it(trained, held):
    elmo = trained.get_pipe("elmo") if held else None
    trained.remove_pipe("elmo")
    with pytest.warns(UserWarning, match="ELMOW001"):
        trained("She made a play in May.")
    with pytest.raises(ValueError, match="ELMO031"):
        trained.update(make_examples(trained))
    assert elmo is None or elmo.model.predict([trained.make_doc("A play.")])


def test_what_is_disabled_in_the_source_can_run_in_its_new_pipeline(trained):
    trained.disable_pipe("elmo")
    nlp = spacy.blank("xx")
    for name in ("elmo", "tagger"):
        nlp.add_pipe(name, source=trained)
    wanted = scores_of(nlp, "tagger")
    doc = nlp.make_doc("She made a play in May.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nlp.get_pipe("tagger").model.predict([doc])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    with pytest.warns(UserWarning, match="ELMOW001"):
        trained("She made a play in May.")


def test_a_component_sourced_with_its_elmo_can_learn(trained):
    nlp = spacy.blank("xx")
    for name in ("elmo", "tagger"):
        nlp.add_pipe(name, source=trained)
    nlp.resume_training()
    before = s_of(nlp.get_pipe("tagger"))
    nlp.update(make_examples(nlp), sgd=nlp.create_optimizer())
    nlp.get_pipe("tagger").update(make_examples(nlp))
    assert not np.array_equal(s_of(nlp.get_pipe("tagger")), before)


def test_a_new_component_learns_beside_sourced_ones(trained):
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", source=trained)
    add_task(nlp, "ner", tok2vec=TOK2VEC)
    nlp.add_pipe("tagger", source=trained)
    with nlp.select_pipes(enable=["ner"]):  # the tagger keeps what it has learned
        optimizer = nlp.initialize(lambda: make_examples(nlp))
    before = s_of(nlp.get_pipe("ner"))
    for _ in range(2):  # the parser's last layer begins with zeros
        nlp.update(make_examples(nlp), sgd=optimizer)
    assert not np.array_equal(s_of(nlp.get_pipe("ner")), before)


def test_a_copy_of_a_pipeline_has_its_own_list_of_what_is_disabled(trained):
    nlp = copy.deepcopy(trained)
    nlp.disable_pipe("elmo")
    with pytest.warns(UserWarning, match="ELMOW001"):
        nlp("She made a play in May.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained("She made a play in May.")


@pytest.mark.parametrize("replace", [True, False])
def test_sourced_components_predict_the_same(trained, replace, tmp_path):
    texts = [eg.text for eg in make_examples(trained)]
    wanted = [[token.tag_ for token in doc] for doc in trained.pipe(texts)]
    trained.to_disk(tmp_path / "source")
    source = spacy.load(tmp_path / "source")
    nlp = spacy.blank("xx")
    if replace:
        source.replace_listeners("elmo", "tagger", ["model.tok2vec"])
    else:
        nlp.add_pipe("elmo", source=source)
    nlp.add_pipe("tagger", source=source)
    for pipeline in (nlp, None):
        if pipeline is None:
            nlp.to_disk(tmp_path / "saved")
            pipeline = spacy.load(tmp_path / "saved")
        found = [[token.tag_ for token in doc] for doc in pipeline.pipe(texts)]
        assert found == wanted
        assert pipeline.pipe_names == ["tagger"] if replace else ["elmo", "tagger"]


@pytest.mark.parametrize(
    "elmo, tagger, overrides",
    [
        (None, None, {"training.annotating_components": ["elmo"]}),
        ("sourced", None, {"training.frozen_components": ["elmo"]}),
        (None, "sourced", {}),
        ("sourced", "sourced", {"training.frozen_components": ["elmo", "tagger"]}),
        ("sourced", "sourced", {"training.frozen_components": ["tagger"]}),
        (None, "replaced", {}),
    ],
)
def test_spacy_train_with_frozen_annotating_and_sourced_components(
    trained, elmo, tagger, overrides, bilm_config, tmp_path, caplog
):
    (tmp_path / "out").mkdir()
    trained.to_disk(tmp_path / "source")
    docs = spacy.tokens.DocBin(docs=[eg.reference for eg in make_examples(trained)])
    docs.to_disk(tmp_path / "train.spacy")
    config = spacy.util.load_config(ROOT / "configs" / "ner_tagger.cfg")
    config["nlp"]["lang"] = "xx"
    config["components"]["elmo"]["model"] = bilm_config()
    sourced = {"source": str(tmp_path / "source")}
    if elmo:
        config["components"]["elmo"] = sourced
    if tagger:
        config["components"]["tagger"] = sourced
    if tagger == "replaced":
        config["components"]["tagger"]["replace_listeners"] = ["model.tok2vec"]
    data = str(tmp_path / "train.spacy")
    overrides = {
        **overrides, "paths.train": data, "paths.dev": data,
        "training.max_steps": 3, "training.eval_frequency": 2,
    }  # fmt: skip
    config = config.merge(spacy.util.dot_to_dict(overrides))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*ELMO.*")
        nlp = spacy.training.initialize.init_nlp(config)
        gammas = [get_mix(mix_of(nlp.get_pipe("ner")))[1]]
        before = scores_of(nlp, "tagger")
        heard = nlp.get_pipe("elmo").listening_components
        assert sorted(heard) == ["ner", "tagger"][: 1 + (tagger != "replaced")]
        nlp, _ = spacy.training.loop.train(nlp, tmp_path / "out")
    gammas.append(get_mix(mix_of(nlp.get_pipe("ner")))[1])
    # Nothing of an upstream that would be retrained
    assert "W086" not in caplog.text and "W087" not in caplog.text
    # gamma started from a sample, not from zeros, and moved
    assert gammas[0] != 1.0 and gammas[0] != gammas[1]
    frozen = "tagger" in overrides.get("training.frozen_components", [])
    assert np.array_equal(scores_of(nlp, "tagger"), before) or not frozen
    loaded = spacy.load(tmp_path / "out" / "model-last")
    doc = loaded("She made a play in May.")
    assert doc[3]._.elmo.shape == (3, 12)
    assert all(token.tag_ for token in doc)
