import logging
import warnings
from itertools import takewhile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union
from weakref import WeakSet

from spacy import util
from spacy.language import Language
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer

from ..bilm.model import Floats3d
from ..bilm.paths import WEIGHTS_FILE
from ..errors import Errors, MissingWeights, Warnings
from ..layers.architectures import Encoder
from ..layers.doc_encoder import encode_docs, get_shim, require_bilm
from ..layers.extensions import DIGEST, KEY
from ..layers.listener import WeakLink, is_listener_of
from ..layers.ops import use_torch_ops
from .replacement import ListenerReplacement, unshare
from .vector_hooks import Layer, check_layer, set_vector_hooks


class ELMo(TrainablePipe):
    """Run a biLM over each Doc and keep all its layers in doc._.elmo.

    The biLM is frozen, as in the paper, and that keeps this component simple: in
    training it annotates the predicted Docs just as it does in prediction, and the
    listeners in other components read them. There is no gradient to send back, so
    there are no batches to match, unlike in spaCy's Tok2Vec.

    model (Model[List[Doc], List[Floats3d]]): spacy_elmo.BiLM.v1.
    name (str): What listeners call their upstream.
    vectors (int or str or Sequence[float]): See the factory.
    """

    # So spaCy leaves it out of the optimizer and of the table of losses.
    is_trainable = False

    def __init__(
        self,
        vocab: Vocab,
        model: Encoder,
        name: str = "elmo",
        *,
        nlp: Optional[Language] = None,
        vectors: Optional[Layer] = None,
    ) -> None:
        if vectors is not None:
            check_layer(vectors)
        require_bilm("The model of elmo", model)
        # `last_vocab` is that of the last Doc or listener: another one if this was
        # sourced.
        self.vocab = self.last_vocab = vocab
        self.model = model
        self.name = name
        self.vectors = vectors
        self._listener_map: Dict[str, List[Encoder]] = {}
        # Weak: the pipeline owns its components, not the other way around.
        self._nlp = WeakLink(nlp)
        _components.add(self)
        replacement = ListenerReplacement(self._nlp)
        self.model.attrs["replace_listener_cfg"] = replacement.make_config
        self.model.attrs["replace_listener"] = replacement.finish

    @property
    def digest(self) -> str:
        """The digest of the weights, which `spacy elmo info` prints."""
        return get_shim(self.model).digest

    @property
    def listener_map(self) -> Dict[str, List[Encoder]]:
        """The listeners of each component, by its name."""
        return self._listener_map

    @listener_map.setter
    def listener_map(self, linked: Dict[str, List[Encoder]]) -> None:
        # spaCy empties it to link all anew, but only those that are enabled: what is
        # sourced or frozen is disabled while the others are initialized.
        nlp = self._nlp.get()
        if nlp is not None:
            unshare(nlp)
        names = [] if nlp is None else nlp.disabled
        kept = {k: v for k, v in self._listener_map.items() if k in names}
        self._listener_map = {**kept, **linked}
        self._cut_off_earlier_listeners()

    @property
    def listeners(self) -> List[Encoder]:
        return [listener for found in self.listener_map.values() for listener in found]

    @property
    def listening_components(self) -> List[str]:
        return list(self.listener_map)

    def add_listener(self, listener: Encoder, component_name: str) -> None:
        """Connect a listener of another component. One of any upstream ("*") leaves
        the `elmo` that stands before this one.
        """
        before = listener.attrs["component"].get()
        is_other = before is not None and before is not self
        if is_other and before._nlp.get() is self._nlp.get():
            before.remove_listener(listener, component_name)
        found = self.listener_map.setdefault(component_name, [])
        if listener not in found:
            found.append(listener)
        listener.attrs["component"].connect(self)

    def remove_listener(self, listener: Encoder, component_name: str) -> bool:
        found = self.listener_map.pop(component_name, [])
        # A list of its own: replace_listeners goes through the one that was there.
        others = [other for other in found if other is not listener]
        if others:
            self.listener_map[component_name] = others
        was_there = len(others) < len(found)
        if was_there:
            listener.attrs["component"].connect(None)
        return was_there

    def find_listeners(self, component: Any) -> None:
        """Connect the listeners in a component that comes after this one."""
        found = self._listeners_in(component)
        for listener in found:
            self.add_listener(listener, component.name)
        if found:
            use_torch_ops(component.model)
            vocab = getattr(component, "vocab", self.vocab)
            if vocab is not self.vocab:  # made in a pipeline that has sourced this one
                self.last_vocab = vocab

    def _listeners_in(self, component: Any) -> List[Encoder]:
        model = getattr(component, "model", None)
        nodes = model.walk() if isinstance(model, Model) else ()
        return [node for node in nodes if is_listener_of(node, self.name)]

    def _cut_off_earlier_listeners(self) -> None:
        """A sourced component may still hear the `elmo` of its source, which is not
        saved with this pipeline. One that comes before its own `elmo` must not.
        """
        nlp = self._nlp.get()
        components = [] if nlp is None else [proc for _, proc in nlp.components]
        for component in takewhile(lambda proc: proc is not self, components):
            for listener in self._listeners_in(component):
                if listener.attrs["component"].get() not in components:
                    listener.attrs["component"].connect(None)

    def is_enabled(self, docs: Sequence[Doc] = ()) -> bool:
        """Whether the component runs in the pipeline of these Docs: listeners do not
        ask one that was disabled or removed. A pipeline that it was sourced into is
        not known, and has another vocab: there it counts as enabled.
        """
        nlp = self._nlp.get()
        if nlp is None or any(doc.vocab is not nlp.vocab for doc in docs):
            return True
        return any(proc is self for _, proc in nlp.pipeline)

    def knows(self, docs: Sequence[Doc]) -> bool:
        """Whether Docs are of the pipeline that it runs in, as far as can be told. If
        its own has gone, it was sourced into another, with the vocab of that one.
        """
        is_known = all(doc.vocab in (self.vocab, self.last_vocab) for doc in docs)
        return is_known or self._nlp.get() is None

    def predict(self, docs: Iterable[Doc]) -> List[Floats3d]:
        """Run the biLM.

        RETURNS (List[Floats3d]): (n_tokens, L + 1, width) each, in the memory of the
            host.
        """
        return encode_docs(self.model, list(docs))[0]

    def set_annotations(self, docs: Sequence[Doc], layers: Sequence[Floats3d]) -> None:
        """Set doc._.elmo, in the memory of the host, and the hooks of `vectors`."""
        for doc, X in zip(docs, layers):
            self.last_vocab = doc.vocab
            doc.user_data.update({KEY: self.model.ops.to_numpy(X), DIGEST: self.digest})
            if self.vectors is not None:
                set_vector_hooks(doc, self.vectors)

    def annotate(self, docs: Sequence[Doc]) -> None:
        self.set_annotations(docs, self.predict(docs))

    def open_sentence_cache(self) -> None:
        """From now on, in training, keep the layers of sentences."""
        get_shim(self.model).open_sentence_cache()

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Annotate the predicted Docs, which are copies: the corpus stays clean."""
        examples = list(examples)
        validate_examples(examples, "ELMo.update")
        if not self.listeners and self.vectors is None:
            warnings.warn(Warnings.W007.format(name=self.name), stacklevel=2)
        self.open_sentence_cache()
        self.annotate([eg.predicted for eg in examples])
        return {} if losses is None else losses

    @property
    def rehearse(self) -> Any:
        """Not there. Of all components with this method, in random order, spaCy applies
        the gradients of the last one only: it must not be one that has none.
        """
        raise AttributeError("rehearse")

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
    ) -> None:
        """Read the weights: they tell the dimensions, which listeners ask for."""
        validate_get_examples(get_examples, "ELMo.initialize")
        if nlp is not None:
            self._nlp.connect(nlp)
            self.vocab = nlp.vocab
        self.model.initialize()
        if self.vectors is not None:
            check_layer(self.vectors, self.model.get_dim("nL"))

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        for listener in self.listeners:  # a pickle has no weak links
            listener.attrs["component"].connect(self)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        return util.to_bytes({"model": get_shim(self.model).to_bytes}, exclude)

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "ELMo":
        util.from_bytes(bytes_data, {"model": get_shim(self.model).from_bytes}, exclude)
        if "model" not in exclude:
            self.model.initialize()
        return self

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Write options.json and weights.hdf5, in the official layout."""
        directory = util.ensure_path(path)
        directory.mkdir(parents=True, exist_ok=True)
        if "model" not in exclude:
            get_shim(self.model).to_directory(directory)

    def from_disk(
        self, path: Union[str, Path], *, exclude: Iterable[str] = ()
    ) -> "ELMo":
        if "model" not in exclude:
            directory = util.ensure_path(path)
            if not (directory / WEIGHTS_FILE).is_file():
                error = Errors.E045.format(path=directory / WEIGHTS_FILE)
                raise MissingWeights(error)
            get_shim(self.model).from_directory(directory)
            self.model.initialize()
            config = directory.parent / "config.cfg"
            if directory.name == self.name and config.is_file():
                self._check_source(config)
        return self

    def _check_source(self, path: Path) -> None:
        """Warn if a config asks for other weights than the pipeline was saved with."""
        try:
            config = util.load_config(path, interpolate=True)
        except ValueError:  # no pipeline's
            return
        components = config.get("components", {})
        own = components.get(self.name, {}).get("model", {}).get("weights")
        asked = get_shim(self.model).source
        if own not in (None, asked):
            warning = Warnings.W009.format(name=self.name, asked=asked, own=own)
            warnings.warn(warning, stacklevel=2)
            # What is saved next must not name the others.
            get_shim(self.model).source = own
            if (
                nlp := self._nlp.get()
            ) is not None and self.name in nlp.component_names:
                nlp.get_pipe_config(self.name)["model"]["weights"] = own


_components: "WeakSet[ELMo]" = WeakSet()


def _is_wanted(record: logging.LogRecord) -> bool:
    """Drop spaCy's warnings that a component is frozen and its listeners are not, or
    the other way around (W086, W087): an `elmo` component never changes.
    """
    message = record.getMessage()
    if not message.startswith(("[W086]", "[W087]")):
        return True
    return not any(f"'{elmo.name}'" in message for elmo in _components)


util.logger.addFilter(_is_wanted)
