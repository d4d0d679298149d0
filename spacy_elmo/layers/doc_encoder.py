from typing import Any, Callable, Iterable, List, Optional, Tuple, cast

import numpy as np
from spacy.tokens import Doc, Span
from spacy.util import registry
from thinc.api import Model
from thinc.types import Floats3d

from ..bilm.model import Floats3d as Layers
from ..bilm.precision import PRECISIONS
from ..bilm.tuning import MAX_BATCH_TOKENS
from ..errors import Errors, require, require_number
from ..segmenters import Segmenter, segment_sentences
from .caches import SentenceCache, WordCache
from .shim import BiLMShim

InT = List[Doc]
OutT = List[Floats3d]
# What the biLM reads from a fresh state: the index of the Doc, those of the tokens in
# it, and their words.
Sentence = Tuple[int, List[int], List[str]]


@registry.architectures("spacy_elmo.BiLM.v1")
def build_bilm(
    weights: str = "en_elmo_sm",
    segmenter: Optional[Segmenter] = None,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    cache_mb: float = 64.0,
    precision: str = "float32",
    sentence_cache_mb: float = 1024.0,
    sentence_cache_path: Optional[str] = None,
    device: Optional[str] = None,
) -> Model[InT, OutT]:
    """Build the biLM of an `elmo` component (Peters et al. 2018, section 3).

    weights (str): A name in `spacy_elmo.registry.weights`, or the path of a directory,
        .zip or .hdf5 file. Read when the model is initialized or first used. A
        trained pipeline contains its weights, and this is no longer read.
    segmenter (Callable[[Doc], Iterable[Span]]): Cuts a Doc into what the biLM reads
        from a fresh state; null takes spacy_elmo.segment_sentences.v1.
    max_batch_tokens (int): Tokens that run through the LSTMs at a time, which bounds
        the memory in use beside the result.
    cache_mb (float): Memory for the token vectors of words seen before.
    precision (str): Of the LSTMs' products: "float32", exact to 1e-5; "bfloat16",
        "int8", or "auto", what is fastest in batches on such a machine.
    sentence_cache_mb (float): Memory for the layers of sentences, from the first
        update on: in later epochs, what it holds needs no biLM.
    sentence_cache_path (str): In training, a folder that keeps them on disk as well,
        for later runs; its size is not bounded.
    device (str): Where the biLM runs, for instance "cuda:0". null: on the GPU if
        spaCy uses it (spacy.prefer_gpu), else on the CPU.
    RETURNS (Model[List[Doc], List[Floats3d]]): (n_tokens, L + 1, width) for each Doc,
        zeros for white space.
    RAISES (ValueError): If an argument is out of its range.
    """
    require(precision in PRECISIONS, "precision", f"one of {PRECISIONS}", precision)
    require_number("max_batch_tokens", max_batch_tokens, 1)
    require_number("cache_mb", cache_mb, 0, 1e12)
    require_number("sentence_cache_mb", sentence_cache_mb, 0, 1e12)
    shim = BiLMShim(
        str(weights),
        precision=precision,
        device=device,
        max_batch_tokens=max_batch_tokens,
        word_cache=WordCache(int(cache_mb * 2**20)),
        sentence_cache=SentenceCache(
            int(sentence_cache_mb * 2**20), sentence_cache_path
        ),
    )
    return Model(
        "elmo-bilm",
        forward,
        init=initialize,
        dims={"nO": None, "nL": None},
        attrs={"segmenter": segmenter or segment_sentences()},
        shims=[shim],
    )


def initialize(model: Model[InT, OutT], X: Optional[InT] = None, Y: Any = None) -> None:
    """Read the weights, which tell the dimensions. A fine-tuned biLM begins anew."""
    get_shim(model).reset()
    options = get_shim(model).bilm.options
    model.set_dim("nL", options.n_layers, force=True)
    # Last: where it is set, another thread takes both for set.
    model.set_dim("nO", options.width, force=True)


def get_shim(model: Model[InT, OutT]) -> BiLMShim:
    return cast(BiLMShim, model.shims[0])


def require_bilm(name: str, model: Model[Any, Any]) -> None:
    """RAISES (ValueError): If a model is not spacy_elmo.BiLM.v1."""
    is_bilm = bool(model.shims) and isinstance(model.shims[0], BiLMShim)
    require(is_bilm, name, "spacy_elmo.BiLM.v1", model.name)


def forward(
    model: Model[InT, OutT], docs: InT, is_train: bool
) -> Tuple[OutT, Callable[[OutT], InT]]:
    layers, backprop = encode_docs(model, docs, is_train)
    return [model.ops.asarray3f(cast(Floats3d, X)) for X in layers], backprop


def encode_docs(
    model: Model[InT, OutT], docs: InT, is_train: bool = False
) -> Tuple[List[Layers], Callable[[OutT], InT]]:
    """As `forward`, in the memory of the host: vectors of a whole corpus do not fit a
    GPU.
    """
    if not model.has_dim("nO"):
        initialize(model)
    sentences = read_sentences(docs, model.attrs["segmenter"])
    words, shim = [words for _, _, words in sentences], get_shim(model)
    backprop_bilm = None
    if is_train:
        encoded, backprop_bilm = shim.encode_in_training(words)
    else:
        encoded = shim.encode(words)
    shape = (model.get_dim("nL"), model.get_dim("nO"))
    layers = [np.zeros((len(doc), *shape), np.float32) for doc in docs]
    for (d, tokens, _), X in zip(sentences, encoded):
        layers[d][tokens] = X

    def backprop(d_layers: OutT) -> InT:
        if backprop_bilm is not None:
            on_host = [model.ops.to_numpy(dX) for dX in d_layers]
            backprop_bilm([on_host[d][tokens] for d, tokens, _ in sentences])
        return []

    return layers, backprop


def read_sentences(docs: InT, segmenter: Segmenter) -> List[Sentence]:
    """The sentences of Docs, without white space: no biLM was trained on it."""
    sentences = []
    for d, doc in enumerate(docs):
        for start, end in _bounds(segmenter(doc), doc) if len(doc) else ():
            # Not `is_space`: a vocab without a language has no such flags.
            words = [t for t in doc[start:end] if not t.text.isspace()]
            if words:
                sentences.append((d, [t.i for t in words], [t.text for t in words]))
    return sentences


def _bounds(spans: Iterable[Span], doc: Doc) -> List[Tuple[int, int]]:
    """(start, end) of each segment; together they must be the Doc."""
    at = 0
    try:
        found = [(span.start, span.end) for span in spans]
        for start, end in [*found, (len(doc), len(doc))]:
            if start != at or end < start:
                raise ValueError(f"a span from {start} to {end}")
            at = end
    except (TypeError, AttributeError, ValueError) as e:
        # The cause may be in a generator of the user's.
        raise ValueError(Errors.E037.format(i=at, n=len(doc), found=e)) from e
    return found
