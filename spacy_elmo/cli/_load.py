"""Names and paths on the command line -> pipelines and vectors."""

import sys
from typing import TYPE_CHECKING, Any, List, Optional, Tuple, Union

from ..errors import CorpusError, Errors

if TYPE_CHECKING:
    from spacy.language import Language

    from ..pipeline.component import ELMo
    from ..pipeline.nearest import StaticVectors

DEFAULT_WEIGHTS = "en_elmo_sm"


def load_elmo(
    weights: Optional[str],
    pipeline: Optional[str],
    lang: Optional[str],
    tokenized: Optional[bool],
) -> Tuple["Language", "ELMo", bool]:
    """A pipeline and its `elmo` component.

    weights (str): Name or path of a biLM, for a pipeline that is made here.
    pipeline (str): Name or path of a pipeline that has the component, instead.
    lang (str): Its language; None as in config.cfg beside the weights, or "en".
    tokenized (bool): Whether the words of texts stand between blanks; None as there.
    RETURNS (Tuple[Language, ELMo, bool]): The pipeline, whose tokenizer is wanted,
        the component, and what is known of `tokenized`.
    RAISES (CorpusError): If both or a pipeline without the component is given.
    RAISES (WeightsError): If there are no such weights.
    """
    from spacy.util import load_model, load_model_from_config

    from ..pipeline.component import ELMo
    from ..weights import resolve
    from .evaluate import _tokenization

    if pipeline is not None:
        if weights is not None:
            raise CorpusError(Errors.E126)
        nlp = load_model(pipeline)
    else:
        weights = weights or DEFAULT_WEIGHTS
        config, settings = _tokenization(resolve(weights), lang, tokenized)
        tokenized = settings.tokenized
        try:
            config = {"nlp": {**config, "pipeline": []}, "components": {}}
            nlp = load_model_from_config(config, auto_fill=True)
        except Exception as e:  # whatever the language or its tokenizer raises
            where = "--lang" if lang is not None else "[nlp] in config.cfg"
            problem = str(e).rstrip(".")
            raise CorpusError(Errors.E051.format(path=where, problem=problem)) from None
        nlp.add_pipe("elmo", config={"model": {"weights": weights}})
    elmos = [pipe for _, pipe in nlp.components if isinstance(pipe, ELMo)]
    if not elmos:
        raise CorpusError(Errors.E122.format(pipeline=pipeline))
    # spaCy's limit on the length of a text is for its parser.
    nlp.max_length = sys.maxsize
    return nlp, elmos[0], bool(tokenized)


def require_layer(elmo: "ELMo", layer: Union[int, str]) -> None:
    """Read the biLM of a component, which must have a layer.

    layer (int or str): See `layers.vectors.set_vector_hooks`.
    RAISES (CorpusError): If it has not.
    """
    from ..layers.vectors import check_layer

    elmo.model.initialize()
    try:
        check_layer(layer, elmo.model.get_dim("nL"))
    except ValueError as e:
        raise CorpusError(str(e)) from None


def load_static(pipeline: str) -> "StaticVectors":
    """The word vectors of a pipeline.

    RETURNS (StaticVectors): From words to their vectors, with zeros for those that
        have none.
    RAISES (CorpusError): If the pipeline has no vectors at all.
    """
    import numpy as np
    from spacy.attrs import LOWER
    from spacy.strings import get_string_id
    from spacy.util import load_model
    from thinc.api import get_current_ops

    table = load_model(pipeline).vocab.vectors
    if not table.size:
        raise CorpusError(Errors.E123.format(pipeline=pipeline))

    def lookup(words: List[str]) -> Any:
        # Not by the vocab, which would keep each word of the corpus.
        keys = [w.lower() for w in words] if table.attr == LOWER else words
        if not keys:
            return np.zeros((0, table.shape[1]), np.float32)
        rows = get_current_ops().to_numpy(table.get_batch(keys)).copy()
        rows[[get_string_id(key) not in table for key in keys]] = 0.0
        return rows

    return lookup
