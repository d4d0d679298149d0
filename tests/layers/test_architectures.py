import gc

import numpy as np
import pytest
import spacy
import torch
from confection import ConfigValidationError
from reference import random_weights, write_weights
from spacy.util import registry
from thinc.api import Adam, get_current_ops

from spacy_elmo import registry as elmo_registry

NLP = spacy.blank("en")
TEXTS = ["She made a play.", "", "Play it again! It is good."]
MIX = {"dropout": 0.0, "l2": 0.0}
EMBED = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": 8,
    "attrs": ["NORM", "SHAPE"],
    "rows": [50, 20],
    "include_static_vectors": False,
}


def build(config, **arguments):
    config = {"model": {**config, **arguments}}
    return registry.resolve(config)["model"]


def elmo_config(bilm, **arguments):
    return {"@architectures": "spacy_elmo.ELMo.v1", "bilm": bilm, **arguments}


def listener_config(**arguments):
    return {"@architectures": "spacy_elmo.ELMoListener.v1", **arguments}


def embed_config(elmo, width=6):
    name = "spacy_elmo.EmbedWithELMo.v1"
    return {"@architectures": name, "width": width, "embed": EMBED, "elmo": elmo}


def params_of(model):
    (shim,) = (shim for node in model.walk() for shim in node.shims)
    return dict(shim.bilm.named_parameters())


def mix_of(model):
    (mix,) = (node for node in model.walk() if node.name == "elmo-mix")
    return mix


@pytest.fixture(scope="module")
def smooth_bilm(make_options, bilm_config, tmp_path_factory):
    """A biLM whose loss has next to no kinks: finite differences need that."""
    options = make_options(
        activation="tanh", cell_clip=None, proj_clip=None, n_highway=1,
        dim=5, projection_dim=4, filters=[[1, 2], [3, 3]],
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("weights") / "smooth"
    arrays = random_weights(options, scale=1.0)
    return bilm_config(write_weights(directory, options, arrays))


@pytest.mark.parametrize(
    "kind, names",
    [
        (
            "architectures",
            ["BiLM.v1", "ELMo.v1", "ELMoListener.v1", "EmbedWithELMo.v1"],
        ),
        ("misc", ["segment_sentences.v1", "segment_docs.v1"]),
    ],
)
def test_the_names_of_the_configs_are_registered(kind, names):
    for name in names:
        assert registry.has(kind, f"spacy_elmo.{name}")


def test_the_factory_and_the_bundled_weights_are_registered():
    assert NLP.has_factory("elmo")
    assert NLP.get_factory_meta("elmo").assigns == ["doc._.elmo"]
    assert "en_elmo_sm" in elmo_registry.weights


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"max_batch_tokens": 0}, ValueError, "ELMO038.*max_batch_tokens"),
        ({"precision": "half"}, ValueError, "ELMO038.*precision must be one of.*half"),
        ({"max_batch_tokens": "many"}, ConfigValidationError, "max_batch_tokens"),
        ({"width": 3}, ConfigValidationError, "width"),
        # spaCy hands a number in quotes on as it is
        ({"cache_mb": "64"}, ValueError, "ELMO038.*cache_mb.*'64'"),
        ({"cache_mb": 1e308}, ValueError, "ELMO038.*cache_mb.*below"),
        ({"cache_mb": -1}, ValueError, "ELMO038.*cache_mb.*at least 0"),
        ({"sentence_cache_mb": float("nan")}, ValueError, "ELMO038.*sentence_cache"),
    ],
)
def test_wrong_arguments_of_the_biLM_are_errors(bilm_config, arguments, error, message):
    with pytest.raises(error, match=message):
        build(bilm_config(**arguments))


@pytest.mark.parametrize("of", ["listener", "elmo"])
@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"dropout": 1.5}, ValueError, "ELMO038.*dropout"),
        ({"layers": "middle"}, ValueError, "ELMO038.*layers.*middle"),
        ({"init": [0.9, 0.9]}, ValueError, "ELMO038.*init"),
        ({"l2": "much"}, ConfigValidationError, "l2"),
        # spaCy hands numbers in quotes on as they are
        ({"dropout": "0.2"}, ValueError, "ELMO038.*dropout.*'0.2'"),
        ({"l2": "0.001"}, ValueError, "ELMO038.*l2.*'0.001'"),
        ({"init": ["0.2", "0.8"]}, ValueError, "ELMO038.*init.*'0.2'"),
        ({"gamma": 1.0}, ConfigValidationError, "gamma"),
    ],
)
def test_wrong_arguments_of_the_mix_are_errors(
    bilm_config, of, arguments, error, message
):
    config = listener_config() if of == "listener" else elmo_config(bilm_config())
    with pytest.raises(error, match=message):
        build(config, **arguments)


@pytest.mark.parametrize("of", ["listener", "elmo"])
def test_the_defaults_of_the_mix_are_what_was_measured_best(bilm_config, of):
    config = listener_config() if of == "listener" else elmo_config(bilm_config())
    mix = mix_of(build(config)).attrs["settings"]
    assert (mix.dropout, mix.layer_norm, mix.l2) == (0.2, True, 0.001)


@pytest.mark.parametrize("name", ["spacy_elmo.ELMoListener.v1", "spacy_elmo.ELMo.v1"])
def test_arguments_reach_the_mix(bilm_config, name):
    arguments = {
        "dropout": 0.25, "l2": 0.5, "layer_norm": True, "layers": 1,
        "init": [0.0, 1.0, 0.0], "trainable_mix": False,
    }  # fmt: skip
    config = {"@architectures": name, **arguments}
    if name == "spacy_elmo.ELMo.v1":
        config["bilm"] = bilm_config()
    settings = mix_of(build(config)).attrs["settings"]
    assert {key: getattr(settings, key) for key in arguments} == arguments


@pytest.mark.parametrize("with_sample", [True, False])
def test_the_width_is_that_of_the_weights(bilm_config, other_weights, with_sample):
    docs = [NLP(text) for text in TEXTS]
    for weights, width in ((None, 12), (other_weights, 8)):
        bilm = bilm_config(weights) if weights else bilm_config()
        model = build(elmo_config(bilm))
        model.initialize(X=docs if with_sample else None)
        assert model.get_dim("nO") == width
        Ys = model.predict(docs)
        assert [Y.shape for Y in Ys] == [(len(doc), width) for doc in docs]


def test_a_width_in_quotes_is_an_error():
    with pytest.raises(ValueError, match="ELMO038.*width.*'96'"):
        build(embed_config(listener_config(), width="96"))


@pytest.mark.parametrize("width", [6, 24])
def test_embed_with_elmo_gives_the_width_it_is_told(bilm_config, width):
    docs = [NLP(text) for text in TEXTS]
    embed = embed_config(elmo_config(bilm_config(), **MIX), width)
    encode = {
        "@architectures": "spacy.MaxoutWindowEncoder.v2",
        "width": width, "depth": 1, "window_size": 1, "maxout_pieces": 2,
    }  # fmt: skip
    tok2vec = {"@architectures": "spacy.Tok2Vec.v2", "embed": embed, "encode": encode}
    for config in (embed, tok2vec):
        model = build(config)
        assert model.get_dim("nO") == width
        model.initialize(X=docs)
        Ys, backprop = model(docs, is_train=True)
        assert [Y.shape for Y in Ys] == [(len(doc), width) for doc in docs]
        backprop([np.ones_like(Y) * np.arange(width, dtype="f") for Y in Ys])
        # Both halves of [x; ELMo] take part
        grads = {n.name: n.get_grad("w") for n in model.walk() if n.has_grad("w")}
        assert grads["elmo-mix"].any()
        assert any(n.has_grad("E") for n in model.walk())
        assert [Y.shape for Y in model.predict(docs[1:2])] == [(0, width)]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_trainable_biLM_gets_the_gradients_of_finite_differences(
    smooth_bilm, layer_norm
):
    docs = [NLP(text) for text in TEXTS]
    # Batches this small make the backward pass put several together
    bilm = {**smooth_bilm, "max_batch_tokens": 8}
    init = [0.5, 0.2, 0.3]
    model = build(
        elmo_config(bilm, trainable=True, layer_norm=layer_norm, init=init, **MIX)
    )
    model.initialize(X=docs)
    rng = np.random.default_rng(0)
    Ys, backprop = model(docs, is_train=True)
    dYs = [rng.normal(size=Y.shape).astype("f") for Y in Ys]
    backprop(dYs)

    def loss():
        Ys, _ = model(docs, is_train=True)
        return sum((Y.astype("float64") * dY).sum() for Y, dY in zip(Ys, dYs))

    params = params_of(model)
    gradients = {name: param.grad.numpy().copy() for name, param in params.items()}
    for name, param in params.items():
        # Along the gradient the loss rises by its norm
        norm = np.linalg.norm(gradients[name])
        assert norm > 0, name
        values = param.data.numpy()
        step = (2e-3 / norm) * gradients[name]
        values += step
        above = loss()
        values -= 2 * step
        below = loss()
        values += step
        assert (above - below) / 4e-3 == pytest.approx(norm, rel=0.02), name


def test_an_update_trains_the_biLM_and_predictions_follow(smooth_bilm):
    docs = [NLP(text) for text in TEXTS]
    model = build(elmo_config(smooth_bilm, trainable=True, **MIX))
    model.initialize(X=docs)
    before = {name: param.detach().clone() for name, param in params_of(model).items()}
    wanted = [-Y for Y in model.predict(docs)]
    optimizer, losses = Adam(0.005), []
    for _ in range(10):
        Ys, backprop = model(docs, is_train=True)
        dYs = [Y - target for Y, target in zip(Ys, wanted)]
        losses.append(sum(float((dY**2).sum()) for dY in dYs))
        backprop(dYs)
        model.finish_update(optimizer)
    assert losses[-1] < 0.9 * losses[0]
    for name, param in params_of(model).items():
        assert not param.equal(before[name]), name
    # No vector of an earlier word table is left over
    found = model.predict(docs)
    for Y, again in zip(found, model(docs, is_train=True)[0]):
        np.testing.assert_allclose(Y, again, rtol=1e-5, atol=1e-6)
    loaded = build(elmo_config(smooth_bilm, trainable=True, **MIX))
    loaded.from_bytes(model.to_bytes())
    for Y, again in zip(found, loaded.predict(docs)):
        np.testing.assert_allclose(Y, again, rtol=1e-5, atol=1e-6)
    # Averages reach the biLM too, and go again
    with model.use_params({**optimizer.averages}):
        assert not np.allclose(model.predict(docs)[0], found[0], atol=1e-6)
    np.testing.assert_allclose(model.predict(docs)[0], found[0], rtol=1e-5, atol=1e-6)


def test_a_biLM_on_a_gpu_learns_without_cupy(smooth_bilm, monkeypatch):
    """spaCy is on the CPU then: Thinc must not make arrays of CuPy's."""
    docs = [NLP(text) for text in TEXTS]
    model = build(elmo_config(smooth_bilm, trainable=True, **MIX))
    model.initialize(X=docs)
    before = {name: param.detach().clone() for name, param in params_of(model).items()}
    Ys, backprop = model(docs, is_train=True)
    backprop(Ys)
    monkeypatch.setattr("thinc.util.is_torch_cuda_array", lambda _: True)
    monkeypatch.setattr("thinc.util.cupy_from_dlpack", None, raising=False)
    model.finish_update(Adam(0.005))
    for name, param in params_of(model).items():
        assert not param.equal(before[name]), name


def test_the_biLM_takes_its_share_of_the_learn_rate(smooth_bilm):
    docs = [NLP(text) for text in TEXTS]

    def steps(scale):
        config = elmo_config(smooth_bilm, trainable=True, learn_rate_scale=scale, **MIX)
        model = build(config)
        model.initialize(X=docs)
        before = {name: p.detach().clone() for name, p in params_of(model).items()}
        Ys, backprop = model(docs, is_train=True)
        backprop(Ys)
        model.finish_update(Adam(0.001, L2=0.0))
        after = params_of(model)
        return {name: after[name].detach() - p for name, p in before.items()}

    whole, half = steps(1.0), steps(0.5)
    for name, step in whole.items():
        assert step.any(), name
        torch.testing.assert_close(half[name], step / 2, rtol=1e-2, atol=1e-6)


def test_updates_leave_no_tensors_behind(smooth_bilm):
    docs = [NLP(text) for text in TEXTS]
    model = build(elmo_config(smooth_bilm, trainable=True, **MIX))
    model.initialize(X=docs)
    optimizer, counts = Adam(0.001), []
    for _ in range(5):
        Ys, backprop = model(docs, is_train=True)
        backprop(Ys)
        model.finish_update(optimizer)
        del Ys, backprop
        gc.collect()
        counts.append(sum(type(o) is torch.Tensor for o in gc.get_objects()))
    assert counts[-1] == counts[1]


CNN = {
    "@architectures": "spacy.HashEmbedCNN.v2", "width": 8, "depth": 1,
    "embed_size": 20, "window_size": 1, "maxout_pieces": 2, "subword_features": True,
    "pretrained_vectors": None,
}  # fmt: skip


@pytest.mark.parametrize("trainable", [False, True])
def test_elmo_needs_a_bilm_and_embed_a_mix(trainable, bilm_config):
    with pytest.raises(ValueError, match=r"ELMO038.*bilm must be spacy_elmo.BiLM.v1"):
        build(elmo_config(CNN, trainable=trainable))
    with pytest.raises(ValueError, match=r"ELMO038.*elmo must be a listener or"):
        build(embed_config(bilm_config()))


def test_a_trainable_copy_has_weights_of_its_own(smooth_bilm):
    model = build(elmo_config(smooth_bilm, trainable=True))
    model.initialize()
    before = {name: param.detach().clone() for name, param in params_of(model).items()}
    for param in params_of(model.copy()).values():
        param.data += 1
    assert all(p.equal(before[name]) for name, p in params_of(model).items())


def test_a_frozen_biLM_gets_no_gradients_and_stays(bilm_config):
    docs = [NLP(text) for text in TEXTS]
    model = build(elmo_config(bilm_config()))
    model.initialize(X=docs)
    before = {name: param.clone() for name, param in params_of(model).items()}
    Ys, backprop = model(docs, is_train=True)
    assert backprop(Ys) == []
    mix, w = mix_of(model), mix_of(model).get_param("w").copy()
    model.finish_update(Adam(0.1))
    assert not np.array_equal(mix.get_param("w"), w)
    for name, param in params_of(model).items():
        assert not param.requires_grad
        assert param.equal(before[name]), name


def test_a_trainable_biLM_takes_an_all_empty_batch(smooth_bilm):
    model = build(elmo_config(smooth_bilm, trainable=True))
    model.initialize()
    Ys, backprop = model([NLP(""), NLP(" ")], is_train=True)
    assert [Y.shape for Y in Ys] == [(0, 8), (1, 8)]
    backprop(Ys)
    model.finish_update(Adam(0.1))


def test_vectors_are_arrays_of_the_ops(bilm_config):
    model = build(elmo_config(bilm_config()))
    model.initialize()
    Y = model.predict([NLP(TEXTS[0])])[0]
    assert isinstance(Y, get_current_ops().xp.ndarray)
    assert Y.dtype == "float32"
