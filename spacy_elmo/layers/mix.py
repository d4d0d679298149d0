from dataclasses import dataclass
from math import isclose
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np
from thinc.api import Model
from thinc.types import Floats1d, Floats2d, Floats3d

from ..errors import Errors, require, require_number

InT = List[Floats3d]
OutT = List[Floats2d]
# int first: confection 0.1 converts a value to the first type that takes it.
Layers = Union[int, str]

# Adam moves a parameter by about the learning rate per step, 0.001 in spaCy's configs.
# On this scale a thousand steps move w by up to 10.
W_SCALE = 10.0
# Added to variances; a sum of squares below it counts as zero.
EPSILON = 1e-12


@dataclass(frozen=True)
class MixSettings:
    """What the config says. In one object because Thinc cannot save it: attrs that are
    saved win over what spacy.load(config=...) overrides.
    """

    dropout: float
    l2: float
    layer_norm: bool
    layers: Layers
    init: Optional[Sequence[float]]
    trainable_mix: bool
    backprop_layers: bool


def ScalarMix(
    dropout: float = 0.2,
    l2: float = 0.001,
    layer_norm: bool = True,
    layers: Layers = "all",
    init: Optional[Sequence[float]] = None,
    trainable_mix: bool = True,
    backprop_layers: bool = False,
) -> Model[InT, OutT]:
    """The task's own mix of the biLM's layers (Peters et al. 2018, equation 1):

        ELMo_k = gamma * sum_j s_j h_kj        s = softmax(w), j = 0..L

    What the task learns of gamma is `gamma_shift`: gamma = gamma_0 (1 + gamma_shift).
    `initialize` chooses gamma_0 so that the mixed vectors of its sample have a root
    mean square of 1. Weight decay pulls gamma to it, and a thousand steps of Adam move
    gamma by up to its own size.

    dropout (float): Of the mixed vectors, in training (the paper: 0.5).
    l2 (float): Weight of the regularizer l2 * ||w||^2, which pulls toward a plain
        average. Gamma is not regularized.
    layer_norm (bool): Normalize each layer of each token to mean 0 and variance 1
        first (the paper: false). The reference takes one mean over a whole batch,
        which makes a vector depend on its neighbors in the batch; here it is per
        token.
    layers (Union[int, str]): "all" to mix, "top" or the number of a layer (0 is the
        token layer) to take just that one.
    init (Sequence[float]): The weights s to begin with, after the softmax.
    trainable_mix (bool): Whether the task learns s and gamma.
    backprop_layers (bool): Whether the encoder before wants a gradient.
    RETURNS (Model[List[Floats3d], List[Floats2d]]): From (n_tokens, L + 1, width) to
        (n_tokens, width) for each Doc.
    RAISES (ValueError): If an argument is out of its range. `initialize` raises it for
        an `init` of another length than L + 1, `get_mix` for a layer above L.
    """
    require_number("dropout", dropout, 0, below=1)
    require_number("l2", l2, 0)
    known = layers in ("all", "top") or (type(layers) is int and layers >= 0)
    require(known, "layers", "'all', 'top' or a number from 0 to L", layers)
    if init is not None:
        for j, s in enumerate(init):
            require_number(f"init[{j}]", s, 0)
        sums_up = isclose(sum(init), 1, abs_tol=1e-3)
        require(sums_up, "init", "weights after the softmax, whose sum is 1", init)
    settings = MixSettings(
        dropout, l2, layer_norm, layers, init, trainable_mix, backprop_layers
    )
    return Model(
        "elmo-mix",
        forward,
        init=initialize,
        dims={"nO": None, "nL": None},
        params={"w": None, "gamma_shift": None},
        attrs={
            "settings": settings,  # spaCy overwrites a "dropout_rate" at each update
            "gamma_0": 1.0,
        },
    )


def get_mix(model: Model[InT, OutT]) -> Tuple[Floats1d, float]:
    """What a mix has learned.

    RETURNS (Tuple[Floats1d, float]): s, shape (L + 1,), and gamma.
    RAISES (ValueError): If it is not initialized, or if the biLM has no such layer.
    """
    if model.has_param("w") is None:
        raise ValueError(Errors.E039)
    layers, n_layers = model.attrs["settings"].layers, model.get_dim("nL")
    if layers == "all":
        s = model.ops.softmax(W_SCALE * model.get_param("w"))
    else:
        layer = n_layers - 1 if layers == "top" else layers
        wanted = f"a layer of the biLM, from 0 to {n_layers - 1}"
        require(layer < n_layers, "layers", wanted, layers)
        s = model.ops.alloc1f(n_layers)
        s[layer] = 1.0
    gamma_shift = float(model.get_param("gamma_shift")[0])
    return s, model.attrs["gamma_0"] * (1 + gamma_shift)


def forward(
    model: Model[InT, OutT], Xs: InT, is_train: bool
) -> Tuple[OutT, Callable[[OutT], InT]]:
    ops, xp = model.ops, model.ops.xp
    settings: MixSettings = model.attrs["settings"]
    s, gamma = get_mix(model)
    n_layers, width = model.get_dim("nL"), model.get_dim("nO")
    for X in Xs:
        if X.shape[1:] != (n_layers, width):
            here = {"n_layers": n_layers, "width": width}
            raise ValueError(Errors.E033.format(found=X.shape, **here))
    backprops: List[Callable[[Any], Any]] = []
    if settings.layer_norm:
        normed = [_layer_norm(xp, X) for X in Xs]
        Xs, backprops = [X for X, _ in normed], [backprop for _, backprop in normed]
    mixed = [xp.matmul(s, X) for X in Xs]  # (n, width)
    rate = settings.dropout if is_train else 0.0
    masks = [ops.get_dropout_mask(Y.shape, rate) if rate else None for Y in mixed]
    scale = xp.float32(gamma)
    Ys = [Y * scale if m is None else Y * (scale * m) for Y, m in zip(mixed, masks)]

    def backprop(dYs: OutT) -> InT:
        dYs = [dY if m is None else dY * m for dY, m in zip(dYs, masks)]
        if settings.trainable_mix:
            _backprop_mix(model, s, gamma, Xs, mixed, dYs)
        if not settings.backprop_layers:
            return []
        dXs = [xp.einsum("l,nd->nld", scale * s, dY) for dY in dYs]
        return [f(dX) for f, dX in zip(backprops, dXs)] if backprops else dXs

    return Ys, backprop


def _backprop_mix(
    model: Model[InT, OutT], s: Floats1d, gamma: float, Xs: InT, mixed: OutT, dYs: OutT
) -> None:
    xp = model.ops.xp
    d_gamma = model.ops.alloc1f(1)
    d_s = model.ops.alloc1f(len(s))
    for X, Y, dY in zip(Xs, mixed, dYs):
        d_gamma += xp.vdot(dY, Y)
        d_s += gamma * xp.einsum("nd,nld->l", dY, X)
    settings: MixSettings = model.attrs["settings"]
    model.inc_grad("gamma_shift", model.attrs["gamma_0"] * d_gamma)
    if settings.layers == "all":
        w = W_SCALE * model.get_param("w")
        d_w = s * (d_s - xp.vdot(s, d_s))
        # Once an update, whose batch may come in parts (`accumulate_gradient`).
        if not (model.has_grad("w") and model.get_grad("w").any()):
            d_w += 2 * settings.l2 * w
        model.inc_grad("w", d_w * W_SCALE)


def initialize(model: Model[InT, OutT], X: Optional[InT] = None, Y: Any = None) -> None:
    """Set w and gamma, which starts from 1 without a sample. nL and nO must be set."""
    ops, xp = model.ops, model.ops.xp
    n_layers = model.get_dim("nL")
    init = model.attrs["settings"].init
    w = ops.alloc1f(n_layers)
    if init is not None:
        wanted = f"the weights of {n_layers} layers"
        require(len(init) == n_layers, "init", wanted, init)
        log_s = np.log(np.maximum(init, 1e-6))
        # Softmax ignores shifts: take the solution nearest 0, where l2 pulls.
        w[:] = ops.asarray1f((log_s - log_s.mean()) / W_SCALE)
    model.set_param("w", w)
    model.set_param("gamma_shift", ops.alloc1f(1))
    model.attrs["gamma_0"] = 1.0
    Ys = model.predict(X or [])
    squares = sum(float(xp.square(Y).sum()) for Y in Ys)
    # Zero rows are white space: they say nothing about the scale.
    n_tokens = sum(int(xp.any(x, axis=(1, 2)).sum()) for x in X or [])
    if squares > EPSILON:
        mean = squares / n_tokens / model.get_dim("nO")
        model.attrs["gamma_0"] = float(mean**-0.5)


def _layer_norm(xp: Any, X: Any) -> Tuple[Any, Callable[[Any], Any]]:
    """Each layer of each token to mean 0 and variance 1; zero rows stay zero."""
    centered = X - X.mean(axis=2, keepdims=True)
    inverse = 1 / xp.sqrt(xp.square(centered).mean(axis=2, keepdims=True) + EPSILON)
    Y = centered * inverse

    def backprop(dY: Any) -> Any:
        mean = dY.mean(axis=2, keepdims=True)
        along = (dY * Y).mean(axis=2, keepdims=True)
        return inverse * (dY - mean - Y * along)

    return Y, backprop
