import warnings
from typing import Any, Callable, List, Optional, Tuple

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats3d

from ..errors import Errors, Warnings
from .extensions import get_layers, is_set_by
from .link import Flag, WeakLink

InT = List[Doc]
OutT = List[Floats3d]

# What marks a listener. A sentinel and not a subclass: Model.copy() makes plain
# Models, and spaCy's tok2vec with upstream "*" would claim a subclass of its own.
SENTINEL = "elmo_listener"


def ELMoListener(upstream: str = "*") -> Model[InT, OutT]:
    """Read the layers that an `elmo` component has put on the Docs.

    The biLM is frozen, so that there is nothing to send back: no batches to match
    and no state between calls. Docs that the component has not seen (in `initialize`,
    in `rehearse`, or when a component is updated alone) it is asked for.

    upstream (str): Name of the component, or "*" for any.
    RETURNS (Model[List[Doc], List[Floats3d]]): (n_tokens, L + 1, width) for each Doc.
    """
    return Model(
        "elmo-listener",
        forward,
        init=initialize,
        dims={"nO": None, "nL": None},
        attrs={
            SENTINEL: True,
            "upstream": upstream,
            "component": WeakLink(),
            "warned": Flag(),
        },
    )


def is_listener_of(model: Model[Any, Any], name: str) -> bool:
    """Whether a model is a listener to a component of that name."""
    return bool(model.attrs.get(SENTINEL)) and model.attrs["upstream"] in ("*", name)


def forward(
    model: Model[InT, OutT], docs: InT, is_train: bool
) -> Tuple[OutT, Callable[[OutT], InT]]:
    component = model.attrs["component"].get()
    missing = _missing(docs, component)
    if missing:
        if component is not None and component.is_enabled():
            component.annotate(missing)
        elif is_train:
            raise ValueError(Errors.E031.format(upstream=model.attrs["upstream"]))
        else:
            _warn_once(model)
    return [_to_ops(model, doc, _read(doc, component)) for doc in docs], backprop


def backprop(dYs: OutT) -> InT:
    # In the module and not in forward, so that nothing unpicklable is kept.
    return []


def initialize(
    model: Model[InT, OutT], X: Optional[InT] = None, Y: Optional[OutT] = None
) -> None:
    # Disabled or not: spaCy disables what is frozen or sourced while it initializes
    # the other components.
    component = model.attrs["component"].get()
    if component is not None:
        component.model.initialize()
        set_dims(model, component.model)
        component.annotate(_missing(X or [], component))
    if not model.has_dim("nO"):
        raise ValueError(Errors.E032.format(upstream=model.attrs["upstream"]))


def set_dims(listener: Model[Any, Any], bilm: Model[Any, Any]) -> None:
    """Tell a listener the width and the number of layers, where they are known."""
    for dim in ("nO", "nL"):
        if bilm.has_dim(dim):
            listener.set_dim(dim, bilm.get_dim(dim), force=True)


def _missing(docs: InT, component: Optional[Any]) -> InT:
    return [doc for doc in docs if len(doc) and _read(doc, component) is None]


def _read(doc: Doc, component: Optional[Any]) -> Optional[Any]:
    """The layers, unless another component of the pipeline has set them."""
    layers = get_layers(doc)
    if component is not None and not is_set_by(doc, component.name):
        layers = None
    return layers


def _to_ops(model: Model[Any, Any], doc: Doc, layers: Optional[Any]) -> Floats3d:
    if layers is None or not len(doc):
        return model.ops.alloc3f(len(doc), model.get_dim("nL"), model.get_dim("nO"))
    return model.ops.asarray3f(layers)


def _warn_once(model: Model[Any, Any]) -> None:
    if not model.attrs["warned"].is_set:
        model.attrs["warned"].is_set = True
        warnings.warn(
            Warnings.W001.format(upstream=model.attrs["upstream"]), stacklevel=2
        )
