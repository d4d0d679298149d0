"""What the parts of an output are made of: runs whose recipes differ must not go on
with each other's parts.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional

if TYPE_CHECKING:
    from spacy.language import Language

    from ..pipeline.component import ELMo


def describe_files(files: List[Path]) -> List[List[str]]:
    """The name and the SHA-256 of each file, in order."""
    from ..storage import sha256

    return [[file.name, sha256(file)] for file in files]


def describe_pipeline(nlp: "Language", elmo: "ELMo", mix: Any) -> Dict[str, Any]:
    """Whatever in a pipeline changes what is written.

    nlp (Language): The pipeline, up to its `elmo` component.
    elmo (ELMo): The component.
    mix (Model[List[Floats3d], List[Floats2d]]): What the layers are mixed by, or None.
    RETURNS (Dict[str, Any]): A digest each of the weights, of how text is cut into
        words and sentences for them, and of the mix.
    """
    from ..layers.doc_encoder import get_shim
    from ..layers.sentence_cache import digest

    return {
        "weights": digest(get_shim(elmo.model).bilm),
        "pipeline": _digest(*_describe_text(nlp, elmo), *_describe_run(elmo)),
        "mix": None if mix is None else _digest(*_describe_mix(mix)),
    }


def _describe_text(nlp: "Language", elmo: "ELMo") -> List[Any]:
    """The tokenizer, what runs before the biLM, and where that cuts sentences."""
    found: List[Any] = [nlp.lang, _to_bytes(nlp.tokenizer)]
    for name, pipe in nlp.pipeline:
        if pipe is not elmo:
            found += [nlp.get_pipe_config(name), _to_bytes(pipe)]
    config = nlp.get_pipe_config(elmo.name)
    return [*found, config.get("model", {}).get("segmenter")]


def _describe_run(elmo: "ELMo") -> List[Any]:
    """How the biLM computes, beside its weights."""
    from ..layers.doc_encoder import get_shim

    shim = get_shim(elmo.model)
    return [shim.precision, shim.bilm.options.to_dict()]


def _describe_mix(mix: Any) -> List[Any]:
    params = [mix.ops.to_numpy(mix.get_param(name)) for name in ("w", "delta")]
    attrs = [mix.attrs[name] for name in ("layers", "layer_norm", "gamma_0")]
    return [*(param.tobytes() for param in params), *attrs]


def _to_bytes(part: Any) -> Optional[bytes]:
    """What a component has learned. Functions learn nothing."""
    if not hasattr(part, "to_bytes"):
        return None
    found: bytes = part.to_bytes(exclude=["vocab"])
    return found


def _digest(*parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        if not isinstance(part, bytes):
            part = json.dumps(part, sort_keys=True, default=str).encode("utf8")
        found.update(part + b"\0")
    return found.hexdigest()[:16]
