"""The factory "elmo". spaCy imports this module at every spacy.blank() and
spacy.load(), so it imports nothing that costs.
"""

from typing import TYPE_CHECKING, List

from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config, Model
from thinc.types import Floats3d

if TYPE_CHECKING:
    from .elmo import ELMo

DEFAULT_CONFIG = """
[elmo]

[elmo.model]
@architectures = "spacy_elmo.BiLM.v1"
weights = "en_elmo_sm"
max_batch_tokens = 4096
cache_mb = 64.0
precision = "float32"

[elmo.model.segmenter]
@misc = "spacy_elmo.segment_sentences.v1"
max_length = 256
"""


@Language.factory(
    "elmo",
    assigns=["doc._.elmo"],
    default_config=Config().from_str(DEFAULT_CONFIG)["elmo"],
)
def make_elmo(
    nlp: Language, name: str, model: Model[List[Doc], List[Floats3d]]
) -> "ELMo":
    """Construct an ELMo component, which runs a biLM over each Doc and keeps all its
    layers in doc._.elmo, for listeners in other components and for scripts.

    model (Model[List[Doc], List[Floats3d]]): spacy_elmo.BiLM.v1.
    """
    from .elmo import ELMo

    return ELMo(nlp.vocab, model, name, nlp=nlp)
