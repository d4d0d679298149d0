"""vector, vector_norm, has_vector and similarity from the layers in doc._.elmo."""

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt
from spacy.tokens import Doc, Span, Token

from ..errors import Errors, require
from ..layers.extensions import DIGEST, get_layers

# "top", "mean", the number of a layer, or the weights s_j of a mix.
Layer = Union[int, str, Sequence[float]]
Part = Union[Doc, Span, Token]
Floats = npt.NDArray[np.float32]


def set_vector_hooks(doc: Doc, layer: Layer = "top") -> Doc:
    """Let `vector`, `vector_norm`, `has_vector` and `similarity` of a Doc, its spans
    and its tokens use doc._.elmo. The `vectors` of an elmo component's config do the
    same. A Doc or Span has the average of its tokens, and white space has zeros.

    spaCy does not save hooks with a Doc: they are lost in Doc.to_bytes (which warns,
    W109), in a DocBin and in nlp.pipe(n_process=2). The layers are not, and this
    function brings the hooks back. Once its layers are freed, for instance by a
    doc_cleaner, a Doc has spaCy's own vectors again.

    layer (int or str or Sequence[float]): "top"; "mean" of all layers; the number of
        a layer from 0, the token layer, to L; or L + 1 weights s_j that sum to 1, as
        `spacy elmo mix` prints them.
    RETURNS (Doc): The same Doc.
    RAISES (ValueError): If there are no such layers, or if the Doc was retokenized.
    """
    require(isinstance(doc, Doc), "doc", "a Doc", doc)
    layers = get_layers(doc)
    check_layer(layer, None if layers is None else layers.shape[1])
    # Functions of the module: a Doc pickles with its hooks. Not changed in place:
    # Span.as_doc shares them with the Doc that it comes from.
    hooks: Dict[str, Callable[..., Any]] = {
        "vector": partial(get_vector, layer=layer),
        "has_vector": has_vector,
        "similarity": partial(get_similarity, layer=layer),
    }
    doc.user_span_hooks = {**doc.user_span_hooks, **hooks}
    # Not for spans: there spaCy asks the "vector" hook for the norm.
    hooks["vector_norm"] = partial(get_vector_norm, layer=layer)
    doc.user_hooks = {**doc.user_hooks, **hooks}
    doc.user_token_hooks = {**doc.user_token_hooks, **hooks}
    return doc


def check_layer(layer: Layer, n_layers: Optional[int] = None) -> None:
    """RAISES (ValueError): If there can be no such layer or mix of L + 1 layers."""
    if isinstance(layer, str):
        is_good = layer in ("top", "mean")
    elif isinstance(layer, (int, np.integer)) and not isinstance(layer, bool):
        is_good = 0 <= layer < (n_layers or layer + 1)
    else:
        s = np.asarray(layer)
        is_list = s.dtype.kind in "fiu" and s.ndim == 1
        is_mix = is_list and (s >= 0).all() and np.isclose(s.sum(), 1, atol=1e-3)
        is_good = bool(is_mix) and n_layers in (None, len(s))
    if not is_good:
        has = "" if n_layers is None else f" ({n_layers} layers)"
        raise ValueError(Errors.E124.format(layer=layer, has=has))


def select_layer(layers: Floats, layer: Layer) -> Floats:
    """One layer of many, or their mix: (..., L + 1, width) -> (..., width)."""
    if isinstance(layer, str):
        return layers.mean(axis=-2) if layer == "mean" else layers[..., -1, :]
    if isinstance(layer, (int, np.integer)):
        return layers[..., layer, :]
    return np.asarray(layer, dtype=np.float32) @ layers


def get_vector(part: Part, *, layer: Layer) -> Floats:
    """The vector of a Token, or the average of those of a Span or a Doc, (width,)."""
    layers = part._.elmo
    if layers is None:
        return np.asarray(_without_hooks(part).vector)
    check_layer(layer, layers.shape[-2])  # another `elmo` may have set them since
    if not isinstance(part, Token):
        layers = layers.sum(axis=0) / max(len(layers), 1)
    # A copy: a view would keep all layers of the Doc in memory.
    return np.array(select_layer(layers, layer))


def get_vector_norm(part: Part, *, layer: Layer) -> float:
    """The L2 norm of the vector."""
    return float(np.linalg.norm(get_vector(part, layer=layer)))


def has_vector(part: Part) -> bool:
    """Whether there is a word among the tokens."""
    if part._.elmo is None:
        return bool(_without_hooks(part).has_vector)
    tokens = [part] if isinstance(part, Token) else part
    # Not `is_space`: a vocab without a language has no such flags.
    return any(not token.text.isspace() for token in tokens)


def get_similarity(part: Part, other: Any, *, layer: Layer) -> float:
    """The cosine of the vectors, 0 with white space. A word in two contexts is not 1,
    as it would be in spaCy's own.

    RAISES (ValueError): If the other has no vector, or that of another biLM.
    """
    if part._.elmo is None:
        return float(_without_hooks(part).similarity(other))
    x = get_vector(part, layer=layer)
    # By the same layer, whatever hooks the other has.
    y = get_vector(other, layer=layer) if _may_have_vector(other) else x[:0]
    found = f"one of width {len(y)}" if len(y) else "none"
    if len(y) and _are_of_two_bilms(part, other):
        found = "one of another biLM"
    elif x.shape == y.shape:
        return _cosine(x, y)
    types = {"type": type(part).__name__, "other": type(other).__name__}
    raise ValueError(Errors.E125.format(wanted=len(x), found=found, **types))


def _cosine(x: Floats, y: Floats) -> float:
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / norms if norms else 0.0


def _may_have_vector(other: Any) -> bool:
    """Not a Lexeme, which has no context. A Doc without layers can have the vector of
    the Span that it was made of.
    """
    if isinstance(other, (Span, Token)):
        return other._.elmo is not None
    return isinstance(other, Doc)


def _are_of_two_bilms(*parts: Part) -> bool:
    """Whether their layers are known to be of different biLMs."""
    digests = {_doc_of(part).user_data.get(DIGEST) for part in parts}
    return len(digests - {None}) > 1


def _doc_of(part: Part) -> Doc:
    return part if isinstance(part, Doc) else part.doc


def _without_hooks(part: Part) -> Part:
    """Remove our hooks from its Doc: the layers are gone."""
    ours = (get_vector, get_vector_norm, has_vector, get_similarity)
    doc = _doc_of(part)
    for name in ("user_hooks", "user_token_hooks", "user_span_hooks"):
        hooks = getattr(doc, name).items()
        kept = {k: v for k, v in hooks if getattr(v, "func", v) not in ours}
        setattr(doc, name, kept)
    if doc.tensor is None:
        # From a doc_cleaner, and spaCy asks it for its size.
        doc.tensor = np.zeros((0,), np.float32)
    return part
