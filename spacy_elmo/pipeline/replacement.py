import copy
from typing import Any, Dict, List, Optional

from thinc.api import Model

Config = Dict[str, Any]


class ListenerReplacement:
    """Makes the config of a component whose listener gives way to a biLM of its own,
    for nlp.replace_listeners. That gives the config of the component's whole tok2vec,
    and puts what it gets back at the path that the user names: the listener's, or one
    around it, as the "model.tok2vec" of spaCy's documentation. Only afterwards can be
    seen which.
    """

    def __init__(self) -> None:
        self.before: Config = {}
        self.after: Config = {}
        self.placed: List[Config] = []

    def make_config(self, bilm: Config, tok2vec: Config) -> Config:
        """What is to be filled in once it has its place ("replace_listener_cfg")."""
        if not self.placed:
            self.before, self.after = tok2vec, replace_listeners(tok2vec, bilm)
        self.placed.append({})
        return self.placed[-1]

    def finish(self, bilm: Model[Any, Any], listener: Any, component: Any) -> Any:
        """Fill it in. The model needs no change ("replace_listener")."""
        for config in self.placed:
            config.update(_counterpart(self.before, self.after, config) or self.after)
        self.placed = []
        return bilm


def replace_listeners(config: Any, bilm: Config) -> Any:
    """A copy of a config with spacy_elmo.ELMo.v1 for each listener."""
    if not isinstance(config, dict):
        return copy.deepcopy(config)
    if config.get("@architectures") == "spacy_elmo.ELMoListener.v1":
        config = {**config, "@architectures": "spacy_elmo.ELMo.v1", "bilm": bilm}
        del config["upstream"]
        return config
    return {key: replace_listeners(value, bilm) for key, value in config.items()}


def _counterpart(before: Config, after: Config, placed: Config) -> Optional[Config]:
    """The part of `after` that stands where `placed` is in `before`."""
    if before is placed:
        return dict(after)
    parts = (
        _counterpart(value, after[key], placed)
        for key, value in before.items()
        if isinstance(value, dict)
    )
    return next((part for part in parts if part is not None), None)
