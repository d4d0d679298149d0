"""The mixes of a pipeline: what its components have learned about the layers."""

from typing import Any, Dict, Iterator, List, Tuple

from spacy.language import Language
from thinc.api import Model

from ..layers.architectures import Encoder, Mix
from ..layers.mix import get_mix


def get_mixes(nlp: Language) -> List[Dict[str, Any]]:
    """What the components of a pipeline have learned about the layers of their biLM
    (Peters et al. 2018, equation 1).

    RETURNS (List[Dict[str, Any]]): For each mix "component", "upstream" (None if the
        component has a biLM of its own), "s", a list of L + 1 floats, and "gamma".
    RAISES (ValueError): If a component is not initialized.
    """
    found = []
    for name, encoder, mix in find_mixes(nlp):
        s, gamma = get_mix(mix)
        listener = {"component": name, "upstream": encoder.attrs.get("upstream")}
        found.append({**listener, "s": s.tolist(), "gamma": gamma})
    return found


def find_mixes(nlp: Language) -> Iterator[Tuple[str, Encoder, Mix]]:
    """Find the mixes in all components of a pipeline, also in disabled ones.

    YIELDS (Tuple[str, Model, Model]): The component's name, the encoder that the mix
        reads (a listener, or a biLM), and the mix.
    """
    for name, component in nlp.components:
        model = getattr(component, "model", None)
        for node in model.walk() if isinstance(model, Model) else ():
            for encoder, mix in zip(node.layers, node.layers[1:]):
                if mix.name == "elmo-mix":
                    yield name, encoder, mix
