import numpy as np
import pytest
from thinc.api import Adam, set_dropout_rate

from spacy_elmo.layers.mix import W_SCALE, ScalarMix, get_mix

N_LAYERS, WIDTH = 3, 8
EACH_LAYERS = pytest.mark.parametrize("layers", ["all", "top", 0, 1])
EACH_LAYER_NORM = pytest.mark.parametrize("layer_norm", [False, True])


def make_layers(*lengths, seed=0, scale=1.0):
    """One (n_tokens, L + 1, width) per Doc, each layer on a scale of its own."""
    rng = np.random.default_rng(seed)
    scales = scale * np.arange(1, N_LAYERS + 1).reshape(1, -1, 1)
    shape = (N_LAYERS, WIDTH)
    return [(rng.normal(0.3, 1, (n, *shape)) * scales).astype("f") for n in lengths]


def make_mix(Xs=None, w=None, gamma_shift=None, **arguments):
    mix = ScalarMix(**{"layer_norm": False, **arguments})
    mix.set_dim("nL", N_LAYERS)
    mix.set_dim("nO", WIDTH)
    mix.initialize(X=Xs)
    if w is not None:
        mix.set_param("w", np.asarray(w, dtype="f") / W_SCALE)
    if gamma_shift is not None:
        mix.set_param("gamma_shift", np.asarray([gamma_shift], dtype="f"))
    return mix


def softmax(w):
    return np.exp(w) / np.exp(w).sum()


def mix_in_numpy(X, s, gamma, layer_norm=False):
    """Equation 1 of the paper, token after token."""
    Y = np.zeros((len(X), X.shape[2]))
    for k, token in enumerate(X.astype("float64")):
        for j, h in enumerate(token):
            if layer_norm and h.any():
                h = (h - h.mean()) / h.std()
            Y[k] += gamma * s[j] * h
    return Y


@EACH_LAYER_NORM
@EACH_LAYERS
def test_mixes_as_the_paper_says(layers, layer_norm, assert_close):
    Xs = make_layers(4, 0, 1)
    w, gamma_shift = [0.5, -1.0, 2.0], 0.25
    mix = make_mix(w=w, gamma_shift=gamma_shift, layers=layers, layer_norm=layer_norm)
    one = {"top": 2}.get(layers, layers)
    wanted_s = softmax(np.array(w)) if layers == "all" else np.eye(N_LAYERS)[one]
    s, gamma = get_mix(mix)
    assert_close(s, wanted_s)
    assert gamma == pytest.approx(1.25)
    Ys = mix.predict(Xs)
    assert [Y.dtype for Y in Ys] == ["float32"] * 3
    for X, Y in zip(Xs, Ys):
        assert_close(Y, mix_in_numpy(X, wanted_s, 1.25, layer_norm))


@EACH_LAYER_NORM
@EACH_LAYERS
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_gradients_are_those_of_finite_differences(layers, layer_norm, l2):
    # float64, so that the differences are exact enough
    Xs = [X.astype("float64") for X in make_layers(3, 0, 2, 1)]
    rng = np.random.default_rng(1)
    dYs = [rng.normal(size=(len(X), WIDTH)) for X in Xs]
    mix = make_mix(
        w=[0.5, -1.0, 2.0], gamma_shift=0.25, layers=layers, layer_norm=layer_norm,
        l2=l2, dropout=0.0, backprop_layers=True,
    )  # fmt: skip
    mix.attrs["gamma_0"] = 0.7
    mix.set_param("w", mix.get_param("w").astype("float64"))

    def loss():
        w = W_SCALE * mix.get_param("w")
        penalty = l2 * (w**2).sum() if layers == "all" else 0.0
        Ys, _ = mix(Xs, is_train=True)
        return penalty + sum((Y * dY).sum() for Y, dY in zip(Ys, dYs))

    def differences(values, eps):
        found = np.zeros(values.shape)
        for i in np.ndindex(values.shape):
            kept = values[i]
            values[i] = kept + eps
            above = loss()
            values[i] = kept - eps
            found[i] = (above - loss()) / (2 * eps)
            values[i] = kept
        return found

    _, backprop = mix(Xs, is_train=True)
    dXs = backprop(dYs)
    close = {"rtol": 1e-3, "atol": 1e-4}
    for X, dX in zip(Xs, dXs):
        assert dX.shape == X.shape
        np.testing.assert_allclose(dX, differences(X, 1e-4), **close)
    d_gamma = differences(mix.get_param("gamma_shift"), 0.5)  # linear in gamma_shift
    np.testing.assert_allclose(mix.get_grad("gamma_shift"), d_gamma, **close)
    if layers == "all":
        d_w = differences(mix.get_param("w"), 1e-4)
        np.testing.assert_allclose(mix.get_grad("w"), d_w, **close)
    else:
        assert not mix.has_grad("w")


def test_l2_counts_once_for_a_batch_in_parts(assert_close):
    """As spaCy gives it with `accumulate_gradient`."""
    Xs = make_layers(3, 2, 4, 1)
    whole, parted = (make_mix(w=[0.5, -1, 2], l2=0.3, dropout=0.0) for _ in range(2))
    for _ in range(2):  # also after an update, which leaves gradients of zero
        for mix, size in ((whole, 4), (parted, 1)):
            for i in range(0, 4, size):
                Ys, backprop = mix(Xs[i : i + size], is_train=True)
                backprop(Ys)
        assert_close(parted.get_grad("w"), whole.get_grad("w"))
        for mix in (whole, parted):
            mix.finish_update(Adam(0.001))


def test_a_frozen_mix_and_a_frozen_encoder_get_no_gradients():
    Xs = make_layers(3)
    mix = make_mix(trainable_mix=False)
    Ys, backprop = mix(Xs, is_train=True)
    assert backprop(Ys) == []
    assert not mix.has_grad("w") and not mix.has_grad("gamma_shift")


def test_adam_moves_the_mix_to_the_layer_that_the_task_needs():
    Xs = make_layers(20)
    wanted = mix_in_numpy(Xs[0], [0, 0, 1], 0.5)
    mix = make_mix(Xs, dropout=0.0, l2=0.0)
    optimizer = Adam(0.001)
    for _ in range(400):
        Ys, backprop = mix(Xs, is_train=True)
        backprop([Ys[0] - wanted])
        mix.finish_update(optimizer)
    s, gamma = get_mix(mix)
    assert s[2] > 0.8
    assert 0.3 < gamma < 0.7


@pytest.mark.parametrize("init", [[0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [1 / 3] * 3])
def test_init_gives_the_weights_after_the_softmax(init, assert_close):
    s, _ = get_mix(make_mix(init=init))
    assert_close(s, np.array(init))


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"init": [0.5, 0.6, 0.1]}, "ELMO038.*init"),
        ({"init": [-0.5, 1.0, 0.5]}, "ELMO038.*init"),
        ({"init": [0.5, 0.5]}, "ELMO038.*init must be the weights of 3 layers"),
        ({"dropout": 1.0}, "ELMO038.*dropout"),
        ({"dropout": -0.1}, "ELMO038.*dropout"),
        ({"layers": "bottom"}, "ELMO038.*layers.*bottom"),
        ({"layers": -1}, "ELMO038.*layers"),
        ({"layers": 1.5}, "ELMO038.*layers"),
        ({"layers": True}, "ELMO038.*layers"),
        ({"layers": 3}, "ELMO038.*from 0 to 2, not 3"),
        ({"l2": -1.0}, "ELMO038.*l2.*-1"),
    ],
)
def test_wrong_arguments_are_errors(arguments, error):
    with pytest.raises(ValueError, match=error):
        make_mix(**arguments)


@pytest.mark.parametrize("shape", [(5, 2, WIDTH), (5, N_LAYERS, 4), (5, WIDTH)])
def test_layers_of_other_weights_are_an_error(shape):
    mix = make_mix()
    with pytest.raises(ValueError, match="ELMO033"):
        mix.predict([*make_layers(2), np.zeros(shape, dtype="f")])


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_dropout_is_live_in_training_only_and_is_not_spacys(rate):
    Xs = make_layers(200, 50)
    mix = make_mix(dropout=rate, backprop_layers=True)
    whole = mix.predict(Xs)
    set_dropout_rate(mix, 0.9 - rate)  # what spaCy does at each update
    Ys, backprop = mix(Xs, is_train=True)
    dropped = np.concatenate(Ys) == 0
    assert dropped.mean() == pytest.approx(rate, abs=0.05)
    kept = np.concatenate(Ys)[~dropped]
    np.testing.assert_allclose(
        kept, np.concatenate(whole)[~dropped] / (1 - rate), rtol=1e-5
    )
    # What was dropped gets no gradient
    dX = np.concatenate(backprop([np.ones_like(Y) for Y in Ys]))
    assert (np.abs(dX).sum(axis=1) == 0).tolist() == dropped.tolist()
    for Y, again in zip(whole, mix.predict(Xs)):
        np.testing.assert_array_equal(Y, again)


def test_layer_norm_is_per_token(assert_close):
    X, Z = make_layers(5, 5)
    Z *= 9
    Z[2] = X[2]
    mix = make_mix(layer_norm=True)
    alone = mix.predict([X[2:3]])[0]
    for Y in mix.predict([X, Z]):
        assert_close(Y[2:3], alone)


@EACH_LAYER_NORM
def test_zero_rows_stay_zero_and_pass_finite_gradients(layer_norm):
    Xs = make_layers(4, 3)
    Xs[0][1] = Xs[1][:] = 0
    mix = make_mix(Xs, layer_norm=layer_norm, backprop_layers=True)
    Ys, backprop = mix(Xs, is_train=True)
    assert not Ys[0][1].any() and not Ys[1].any()
    dXs = backprop([np.ones_like(Y) for Y in Ys])
    assert all(np.isfinite(dX).all() for dX in dXs)
    assert np.isfinite(mix.get_grad("w")).all()


@EACH_LAYER_NORM
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_nothing_to_mix_is_no_error(lengths, layer_norm):
    Xs = make_layers(*lengths)
    mix = make_mix(Xs, layer_norm=layer_norm, backprop_layers=True)
    Ys, backprop = mix(Xs, is_train=True)
    assert [Y.shape for Y in Ys] == [(0, WIDTH) for _ in lengths]
    assert [dX.shape for dX in backprop(Ys)] == [X.shape for X in Xs]
    assert get_mix(mix)[1] == 1.0


@EACH_LAYERS
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_gamma_starts_where_the_sample_has_unit_rms(layers, scale):
    Xs = make_layers(30, 0, 7, scale=scale)
    Xs[2][3] = 0  # white space says nothing about the scale
    mix = make_mix(Xs, layers=layers)
    Y = np.concatenate(mix.predict(Xs))
    assert np.sqrt((Y[Y.any(axis=1)] ** 2).mean()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("Xs", [None, [np.zeros((3, N_LAYERS, WIDTH), "f")]])
def test_gamma_starts_from_one_without_a_sample(Xs):
    s, gamma = get_mix(make_mix(Xs))
    assert gamma == 1.0
    np.testing.assert_allclose(s, 1 / N_LAYERS)


@EACH_LAYERS
def test_a_saved_mix_is_the_same_mix(layers):
    Xs = make_layers(5, seed=3)
    mix = make_mix(Xs, [0.5, -1.0, 2.0], 0.25, layers=layers)
    loaded = ScalarMix(layers=layers, layer_norm=False).from_bytes(mix.to_bytes())
    np.testing.assert_array_equal(loaded.predict(Xs)[0], mix.predict(Xs)[0])
    assert get_mix(loaded)[1] == get_mix(mix)[1] != 1.25  # gamma_0 came along


def test_a_copy_learns_on_its_own():
    Xs = make_layers(5)
    mix = make_mix(Xs, [0.5, -1.0, 2.0])
    copied = mix.copy()
    before = mix.predict(Xs)[0]
    np.testing.assert_array_equal(copied.predict(Xs)[0], before)
    copied.set_param("w", np.ones(N_LAYERS, dtype="f"))
    copied.get_param("gamma_shift")[:] = 3
    np.testing.assert_array_equal(mix.predict(Xs)[0], before)
