"""The factory "elmo". spaCy imports this module at every spacy.blank() and
spacy.load(), so it imports nothing that costs.
"""

from typing import TYPE_CHECKING, List, Optional, Union

from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats3d

# For its extensions: a DocBin with vectors can be read before there is a component.
from ..layers import extensions as extensions

if TYPE_CHECKING:
    from .component import ELMo


@Language.factory(
    "elmo",
    assigns=["doc._.elmo"],
    default_config={"model": {"@architectures": "spacy_elmo.BiLM.v1"}},
)
def make_elmo(
    nlp: Language,
    name: str,
    model: Model[List[Doc], List[Floats3d]],
    vectors: Optional[Union[int, str, List[float]]] = None,
) -> "ELMo":
    """Construct an ELMo component, which runs a biLM over each Doc and keeps all its
    layers in doc._.elmo, for listeners in other components and for scripts.

    model (Model[List[Doc], List[Floats3d]]): spacy_elmo.BiLM.v1.
    vectors (int or str or List[float]): What token.vector, span.similarity and so on
        are made from: see spacy_elmo.set_vector_hooks. None leaves them to spaCy.
    """
    from .component import ELMo

    return ELMo(nlp.vocab, model, name, nlp=nlp, vectors=vectors)
