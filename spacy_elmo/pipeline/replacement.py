import copy
from typing import Any, Dict

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
        # It is called for each path, and from the second on spaCy has changed these.
        config = self._model_around(tok2vec)
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
        models = [nlp.get_pipe_config(name).get("model", {}) for name in names]
        return next((m for m in models if m.get("tok2vec") is tok2vec), tok2vec)


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
