import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from spacy.tokens import Doc
from thinc.api import Model, deserialize_attr, serialize_attr
from thinc.types import Floats3d

from ..errors import Errors, Warnings
from .extensions import DIGEST, get_layers

InT = List[Doc]
OutT = List[Floats3d]

# What marks a listener. A sentinel and not a subclass: Model.copy() makes plain
# Models, and spaCy's tok2vec with upstream "*" would claim a subclass of its own.
SENTINEL = "elmo_listener"


class WeakLink:
    """A weak reference that is lost on pickling: a saved component must not drag the
    pipeline along. A copy, such as the model that a component rehearses, keeps it.
    """

    def __init__(self, target: Optional[Any] = None) -> None:
        self.connect(target)

    def connect(self, target: Optional[Any]) -> None:
        self._ref = None if target is None else weakref.ref(target)

    def get(self) -> Optional[Any]:
        return None if self._ref is None else self._ref()

    def __deepcopy__(self, memo: Dict[int, Any]) -> "WeakLink":
        target = self.get()
        return WeakLink(memo.get(id(target), target))  # its copy, if it is copied too

    def __reduce__(self) -> Any:
        return WeakLink, ()


class Upstream(str):
    """The name of a listener's component, which the config says. Thinc would save it,
    and prefer that to what the config or spacy.load(config=...) says now.
    """


@serialize_attr.register(Upstream)
def _leave_out(*_: Any) -> bytes:
    raise TypeError  # Thinc saves what else there is


@deserialize_attr.register(Upstream)
def _keep(current: Upstream, *_: Any) -> Upstream:
    return current  # earlier releases have saved it


def ELMoListener(upstream: str = "*") -> Model[InT, OutT]:
    """Read the layers that an `elmo` component has put on the Docs.

    Nothing is sent back: see `ELMo`. Docs that the component has not seen are passed to
    it: in `initialize`, in `rehearse`, when a component is updated alone, and where one
    makes Docs of its own, as the entity linker does.

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
            "upstream": Upstream(upstream),
            "component": WeakLink(),
            # Of the biLM that the task was trained with: another one of the same
            # width means nothing to it.
            "digest": None,
        },
    )


def is_listener_of(model: Model[Any, Any], name: str) -> bool:
    """Whether a model is a listener to a component of that name."""
    return bool(model.attrs.get(SENTINEL)) and model.attrs["upstream"] in ("*", name)


def forward(
    model: Model[InT, OutT], docs: InT, is_train: bool
) -> Tuple[OutT, Callable[[OutT], InT]]:
    if not model.has_dim("nL"):
        raise ValueError(Errors.E039)
    component, wanted = _component_for(model, docs), model.attrs["digest"]
    if component is not None:
        _check_digest(model, component)
        wanted = component.digest
        if is_train:
            model.attrs["digest"] = wanted
            component.open_sentence_cache()  # its own update does, unless it is frozen
    found = [_layers_of(doc, wanted) for doc in docs]
    missing = [doc for doc, X in zip(docs, found) if X is None and len(doc)]
    if missing:
        if component is not None and component.is_enabled(missing):
            component.annotate(missing)
            found = [get_layers(doc) for doc in docs]
        elif is_train:
            raise ValueError(Errors.E031.format(upstream=model.attrs["upstream"]))
        else:
            warning = Warnings.W001.format(upstream=model.attrs["upstream"])
            warnings.warn(warning, stacklevel=2)
    ops, shape = model.ops, (model.get_dim("nL"), model.get_dim("nO"))
    Xs = [
        ops.alloc3f(len(doc), *shape) if X is None else ops.asarray3f(X)
        for doc, X in zip(docs, found)
    ]
    return Xs, lambda dYs: []


def initialize(model: Model[InT, OutT], X: Optional[InT] = None, Y: Any = None) -> None:
    # Disabled or not: spaCy disables what is frozen or sourced while it initializes
    # the other components.
    component = _component_for(model, X or [])
    if component is not None:
        component.model.initialize()
        for dim in ("nO", "nL"):
            model.set_dim(dim, component.model.get_dim(dim), force=True)
        model.attrs["digest"] = wanted = component.digest
        component.annotate([doc for doc in X or [] if _layers_of(doc, wanted) is None])
    if not model.has_dim("nO"):
        raise ValueError(Errors.E032.format(upstream=model.attrs["upstream"]))


def _component_for(model: Model[InT, OutT], docs: InT) -> Optional[Any]:
    """The `elmo` component, if these Docs are of its pipeline: a sourced component is
    still linked to that of its source, which has another vocab. Pipelines that share a
    vocab cannot be told apart, because spaCy puts the same component into both. Then
    the vectors are right while the source exists, and W001 comes when it has gone.
    """
    component = model.attrs["component"].get()
    return component if component is not None and component.knows(docs) else None


def _check_digest(model: Model[InT, OutT], component: Any) -> None:
    """Warn if the task was trained with another biLM."""
    wanted, found = model.attrs["digest"], component.digest
    if wanted not in (None, found):  # None: not stored by older releases
        listeners = component.listener_map.items()
        names = ", ".join(name for name, mine in listeners if model in mine)
        what = {"name": names, "wanted": wanted, "found": found}
        warning = Warnings.W008.format(**what, upstream=component.name)
        warnings.warn(warning, stacklevel=3)


def _layers_of(doc: Doc, digest: Optional[str]) -> Optional[Floats3d]:
    """The layers, unless they are known to be of other weights."""
    is_other = digest and doc.user_data.get(DIGEST, digest) != digest
    return None if is_other else get_layers(doc)
