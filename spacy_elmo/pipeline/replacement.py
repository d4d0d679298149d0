import copy
import warnings
from typing import Any, Dict

from thinc.api import Config as ThincConfig
from thinc.api import Model

from ..errors import Warnings
from ..layers.listener import WeakLink

Config = Dict[str, Any]


class ListenerReplacement:
    """Replaces a listener by a biLM of the component's own, in its config.

    nlp.replace_listeners calls `make_config` for each path that the user names, and
    writes what that returns there; then it calls `finish` for each listener. A path is
    the listener's or one around it, such as the "model.tok2vec" of spaCy's
    documentation, and neither call is told which. So `make_config` returns an empty
    config, and `finish` rewrites that of the whole model.

    nlp (WeakLink): The pipeline.
    """

    def __init__(self, nlp: WeakLink) -> None:
        self.nlp = nlp
        self.bilm: Config = {}  # of the `elmo` component
        self.model: Config = {}  # of the component that listens
        self.before: Config = {}  # the same, before spaCy has changed it
        self.placed: Config = {}  # what spaCy has written at the last path

    def make_config(self, bilm: Config, tok2vec: Config) -> Config:
        """Remember the configs ("replace_listener_cfg").

        bilm (Dict[str, Any]): Of the `elmo` component's model.
        tok2vec (Dict[str, Any]): `model.tok2vec` of the component that listens.
        """
        model = self._model_around(tok2vec)
        if model is not self.model:  # the first path
            self.model, self.before = model, copy.deepcopy(model)
        self.bilm, self.placed = bilm, {}
        return self.placed

    def finish(self, bilm: Model[Any, Any], listener: Any, component: Any) -> Any:
        """Rewrite the config in place. If the path is that of the model, spaCy has put
        `placed` in the place of its config. The biLM itself needs no change
        ("replace_listener").

        component (ELMo): The `elmo` component.
        """
        self._warn_of_other_sentences(component.name)
        after = replace_listeners(self.before, self.bilm, component.name)
        for config in (self.placed, self.model):
            config.clear()
            config.update(copy.deepcopy(after))
        return bilm

    def _warn_of_other_sentences(self, elmo: str) -> None:
        """The biLM of the component runs after what sets sentences behind `elmo`."""
        nlp: Any = self.nlp.get()
        names = [] if nlp is None else nlp.pipe_names
        configs = {name: nlp.get_pipe_config(name) for name in names}
        mine = [n for n in names if configs[n].get("model") is self.model]
        if not mine or elmo not in names:
            return
        between = names[names.index(elmo) : names.index(mine[0])]
        assigns = {n: nlp.get_pipe_meta(n).assigns for n in between}
        setters = [n for n in between if "token.is_sent_start" in assigns[n]]
        if setters:
            given = {"name": mine[0], "elmo": elmo, "setters": ", ".join(setters)}
            warnings.warn(Warnings.W016.format(**given), stacklevel=2)

    def _model_around(self, tok2vec: Config) -> Config:
        """The config of the model that has this tok2vec; the tok2vec itself where
        `elmo` was sourced, and the pipeline is another.
        """
        nlp: Any = self.nlp.get()
        names = [] if nlp is None else nlp.pipe_names
        configs = {name: nlp.get_pipe_config(name) for name in names}
        for config in configs.values():
            model = config.get("model")
            if isinstance(model, dict) and model.get("tok2vec") is tok2vec:
                separate(configs, nlp.config)
                return config["model"]
        return tok2vec


def unshare(nlp: Any) -> None:
    """Give each component a config of its own: spaCy's replace_listeners may have put
    one object into several.
    """
    for name in nlp.component_names:
        config = nlp.get_pipe_config(name)
        config.update(_copied(config))


def _copied(config: Any) -> Any:
    """A copy of the dicts alone: a value may be a model."""
    if not isinstance(config, dict):
        return config
    return {key: _copied(value) for key, value in config.items()}


def separate(configs: Dict[str, Config], whole: ThincConfig) -> None:
    """Fill in what the configs of components take from each other
    (`tok2vec = ${components.tagger.model.tok2vec}`), before one of them changes.
    """
    if any("${components." in str(config) for config in configs.values()):
        resolved = whole.interpolate()["components"]
        for name, config in configs.items():
            config.update(resolved[name])


def replace_listeners(config: Any, bilm: Config, upstream: str) -> Any:
    """A copy of a config with spacy_elmo.ELMo.v1 for each listener of a component."""
    if not isinstance(config, dict):
        return config
    is_listener = config.get("@architectures") == "spacy_elmo.ELMoListener.v1"
    if is_listener and config["upstream"] in ("*", upstream):
        config = {**config, "@architectures": "spacy_elmo.ELMo.v1", "bilm": bilm}
        del config["upstream"]
        return config
    return {k: replace_listeners(v, bilm, upstream) for k, v in config.items()}
