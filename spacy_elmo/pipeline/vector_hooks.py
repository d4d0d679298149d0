"""vector, vector_norm, has_vector and similarity from the layers in doc._.elmo."""

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt
from spacy.tokens import Doc, Span, Token

from ..errors import Errors
from ..layers.extensions import get_layers

# "top", "mean", the number of a layer, or the weights s_j of a mix.
Layer = Union[int, str, Sequence[float]]
Part = Union[Doc, Span, Token]
Floats = npt.NDArray[np.float32]
Hooks = Dict[str, Callable[..., Any]]


def set_vector_hooks(doc: Doc, layer: Layer = "top") -> Doc:
    """Let `vector`, `vector_norm`, `has_vector` and `similarity` of a Doc, its spans
    and its tokens be those of doc._.elmo. The elmo component does so itself where its
    config says `vectors`. A Doc or Span has the average of its tokens, and white
    space has zeros.

    spaCy does not save hooks with a Doc. They are lost wherever it travels as bytes:
    in Doc.to_bytes (which warns, W109), in a DocBin and in nlp.pipe(n_process=2). The
    layers are not, so that this function brings the hooks back:

        for doc in nlp.pipe(texts, n_process=2):
            set_vector_hooks(doc, "top")

    Without its layers, which a doc_cleaner may have freed, a Doc has the vectors again
    that spaCy gives it. After a retokenization there is an error, in Span.as_doc too:
    retokenize before `elmo`.

    doc (Doc): A Doc that an elmo component has seen.
    layer (int or str or Sequence[float]): "top"; "mean" of all layers; the number of
        a layer from 0, the token layer, to L; or L + 1 weights s_j that sum to 1, as
        `spacy elmo mix` prints them.
    RETURNS (Doc): The same Doc.
    RAISES (ValueError): If there are no such layers.
    """
    layers = get_layers(doc)
    check_layer(layer, None if layers is None else layers.shape[1])
    # Functions of the module: a Doc pickles with its hooks.
    span_hooks: Hooks = {
        "vector": partial(get_vector, layer=layer),
        "has_vector": has_vector,
        "similarity": partial(get_similarity, layer=layer),
    }
    # Not for spans: there spaCy asks the "vector" hook for the norm. Without a hook
    # it takes the norm of the vector.
    hooks: Hooks = {**span_hooks, "vector_norm": partial(get_vector_norm, layer=layer)}
    # Not changed in place: Span.as_doc shares them with the Doc that it comes from.
    doc.user_hooks = {**doc.user_hooks, **hooks}
    doc.user_token_hooks = {**doc.user_token_hooks, **hooks}
    doc.user_span_hooks = {**doc.user_span_hooks, **span_hooks}
    return doc


def check_layer(layer: Layer, n_layers: Optional[int] = None) -> None:
    """Whether there can be such a layer, or such a mix of layers.

    layer (int or str or Sequence[float]): See `set_vector_hooks`.
    n_layers (int): L + 1, where it is known.
    RAISES (ValueError): If there cannot.
    """
    if isinstance(layer, str):
        is_good = layer in ("top", "mean")
    elif isinstance(layer, int):
        is_good = layer >= 0 and (n_layers is None or layer < n_layers)
    else:
        is_good = _is_mix(layer, n_layers)
    if not is_good:
        has = "" if n_layers is None else f" ({n_layers} layers)"
        raise ValueError(Errors.E124.format(layer=layer, has=has))


def select_layer(layers: Floats, layer: Layer) -> Floats:
    """One layer of many, or their mix.

    layers (FloatsXd): Shape (..., L + 1, width).
    layer (int or str or Sequence[float]): See `set_vector_hooks`.
    RETURNS (FloatsXd): Shape (..., width).
    """
    if isinstance(layer, str):
        if layer == "mean":
            mean: Floats = layers.mean(axis=-2)
            return mean
        layer = -1
    if isinstance(layer, int):
        return layers[..., layer, :]
    mixed: Floats = np.asarray(layer, dtype=np.float32) @ layers
    return mixed


def get_vector(part: Part, *, layer: Layer) -> Floats:
    """The vector of a Token, or the average of those of a Span or a Doc, (width,)."""
    layers = _layers_of(part)
    if layers is None:
        return np.asarray(_without_hooks(part).vector)
    if not isinstance(part, Token):
        layers = layers.sum(axis=0) / max(len(layers), 1)
    # A copy: a view would keep all layers of the Doc in memory.
    return np.array(select_layer(layers, layer))


def get_vector_norm(part: Part, *, layer: Layer) -> float:
    """The L2 norm of the vector."""
    return float(np.linalg.norm(get_vector(part, layer=layer)))


def has_vector(part: Part) -> bool:
    """Whether there is a word among the tokens."""
    if _layers_of(part) is None:
        return bool(_without_hooks(part).has_vector)
    tokens = [part] if isinstance(part, Token) else part
    return any(not token.is_space for token in tokens)


def get_similarity(part: Part, other: Any, *, layer: Layer) -> float:
    """The cosine of the vectors, 0 with white space. A word in two contexts is not 1,
    as it would be in spaCy's own.

    RAISES (ValueError): If the other has no vector, or one of another width.
    """
    if _layers_of(part) is None:
        return float(_without_hooks(part).similarity(other))
    x, y = get_vector(part, layer=layer), _vector_of(other, layer)
    if y is None or x.shape != y.shape:
        found = "none" if y is None else f"one of width {len(y)}"
        types = {"type": type(part).__name__, "other": type(other).__name__}
        raise ValueError(Errors.E125.format(wanted=len(x), found=found, **types))
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / norms if norms else 0.0


def _vector_of(other: Any, layer: Layer) -> Optional[Floats]:
    """By the same layer if it has layers, whatever hooks it has. Without them it may
    be a Span.as_doc, which has the vector of the span; a Lexeme has no context.
    """
    if not isinstance(other, (Doc, Span, Token)):
        return None
    if _layers_of(other) is None:
        return np.asarray(other.vector)
    return get_vector(other, layer=layer)


def _layers_of(part: Any) -> Optional[Floats]:
    layers: Optional[Floats] = (
        part._.elmo if isinstance(part, (Doc, Span, Token)) else None
    )
    return layers


def _without_hooks(part: Part) -> Part:
    """Remove our hooks from its Doc: the layers are gone."""
    doc = part if isinstance(part, Doc) else part.doc
    for name in ("user_hooks", "user_token_hooks", "user_span_hooks"):
        hooks = getattr(doc, name)
        setattr(doc, name, {k: v for k, v in hooks.items() if not _is_ours(v)})
    if doc.tensor is None:
        # From a doc_cleaner, and spaCy asks it for its size.
        doc.tensor = np.zeros((0,), np.float32)
    return part


def _is_ours(hook: Any) -> bool:
    ours = (get_vector, get_vector_norm, has_vector, get_similarity)
    return getattr(hook, "func", hook) in ours


def _is_mix(layer: Any, n_layers: Optional[int]) -> bool:
    try:
        s = np.asarray(layer, dtype=np.float32)
    except (TypeError, ValueError):
        return False
    if s.ndim != 1 or (n_layers is not None and len(s) != n_layers):
        return False
    return bool((s >= 0).all() and np.isclose(s.sum(), 1.0, atol=1e-3))
