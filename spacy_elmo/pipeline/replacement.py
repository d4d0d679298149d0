import copy
from typing import Any, Dict

from thinc.api import Config as ThincConfig
from thinc.api import Model

from ..layers.listener import WeakLink

Config = Dict[str, Any]


class ListenerReplacement:
    """Replaces a listener by a biLM of the component's own, in its config.
    nlp.replace_listeners gives us the config of the whole tok2vec, but writes our
    result at the path that the user names: the listener's, or one around it, as the
    "model.tok2vec" of spaCy's documentation.

    nlp (WeakLink): The pipeline.
    """

    def __init__(self, nlp: WeakLink) -> None:
        self.nlp = nlp
        self.bilm: Config = {}
        self.config: Config = {}
        self.before: Config = {}
        self.placed: Config = {}

    def make_config(self, bilm: Config, tok2vec: Config) -> Config:
        """What `finish` fills in ("replace_listener_cfg")."""
        config = self._model_around(tok2vec)
        # Called once for each path: after the first, spaCy has changed the config.
        if config is not self.config:
            self.config, self.before = config, copy.deepcopy(config)
        self.bilm, self.placed = bilm, {}
        return self.placed

    def finish(self, bilm: Model[Any, Any], listener: Any, component: Any) -> Any:
        """Rewrite the whole config in place; if the path is the model itself, write it
        there. The model needs no change ("replace_listener").
        """
        after = replace_listeners(self.before, self.bilm, component.name)
        for config in (self.placed, self.config):
            config.clear()
            config.update(copy.deepcopy(after))
        return bilm

    def _model_around(self, tok2vec: Config) -> Config:
        """The config of the model that has this tok2vec; the tok2vec itself where
        `elmo` was sourced, and the pipeline is another.
        """
        nlp: Any = self.nlp.get()
        names = [] if nlp is None else nlp.pipe_names
        configs = {name: nlp.get_pipe_config(name) for name in names}
        for config in configs.values():
            if config.get("model", {}).get("tok2vec") is tok2vec:
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
