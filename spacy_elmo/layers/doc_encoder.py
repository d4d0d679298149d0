import reprlib
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt
import torch
from spacy.attrs import IS_SPACE, ORTH
from spacy.strings import StringStore
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats3d
from torch import Tensor

from ..bilm.batches import SentenceBatch, make_batches
from ..bilm.model import MAX_BATCH_TOKENS
from ..errors import Errors
from .segmenters import Segmenter, segment_sentences
from .sentence_cache import SentenceCache
from .shim import BiLMShim

InT = List[Doc]
OutT = List[Floats3d]
Ints1d = npt.NDArray[Any]


def BiLMLayer(
    weights: str = "en_elmo_sm",
    segmenter: Optional[Segmenter] = None,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    cache_mb: float = 64.0,
    precision: str = "float32",
    sentence_cache_mb: float = 1024.0,
    sentence_cache_path: Optional[str] = None,
    device: Optional[str] = None,
) -> Model[InT, OutT]:
    """The biLM over Docs: every layer for every token. See
    spacy_elmo.layers.architectures.build_bilm for the arguments.

    RETURNS (Model[List[Doc], List[Floats3d]]): (n_tokens, L + 1, width) for each Doc,
        zeros for white space.
    """
    for name, value, least in (
        ("max_batch_tokens", max_batch_tokens, 1), ("cache_mb", cache_mb, 0),
        ("sentence_cache_mb", sentence_cache_mb, 0),
    ):  # fmt: skip
        if value < least:
            raise ValueError(
                Errors.E038.format(name=name, wanted=f"at least {least}", found=value)
            )
    return Model(
        "elmo-bilm",
        forward,
        init=initialize,
        dims={"nO": None, "nL": None},
        attrs={
            "segmenter": segmenter or segment_sentences(),
            "max_batch_tokens": max_batch_tokens,
        },
        shims=[
            BiLMShim(
                str(weights),
                precision,
                int(cache_mb * 2**20),
                SentenceCache(int(sentence_cache_mb * 2**20), sentence_cache_path),
                device,
            )
        ],
    )


def initialize(
    model: Model[InT, OutT], X: Optional[InT] = None, Y: Optional[OutT] = None
) -> None:
    """Read the weights, which tell the dimensions."""
    options = get_shim(model).bilm.options
    model.set_dim("nO", options.width, force=True)
    model.set_dim("nL", options.n_layers, force=True)


def get_shim(model: Model[Any, Any]) -> BiLMShim:
    shim = model.shims[0]
    assert isinstance(shim, BiLMShim)
    return shim


def forward(
    model: Model[InT, OutT], docs: InT, is_train: bool
) -> Tuple[OutT, Callable[[OutT], InT]]:
    shim = get_shim(model)
    if not model.has_dim("nO"):
        initialize(model)
    text = _read_docs(docs, model.attrs["segmenter"])
    max_tokens = model.attrs["max_batch_tokens"]
    if is_train and shim.trainable:
        return _forward_train(model, docs, text, max_tokens)
    if is_train:
        shim.open_sentences()
    layers = [_alloc(model, doc) for doc in docs]
    cache = shim.sentences
    new = [
        i
        for i, (orths, (doc, tokens)) in enumerate(zip(text.sentences, text.places))
        if not (cache.is_open and _from_cache(cache, orths, layers[doc], tokens))
    ]
    words, sentences = _index(text, new)
    with torch.no_grad():
        table = shim.cache.lookup(shim.bilm, words) if words else torch.empty(0)
        for batch in make_batches(sentences, max_tokens):
            y, _ = shim.bilm(table, batch)
            flat = y.cpu().numpy()
            for row, (start, end) in zip(batch.rows, batch.spans):
                doc, tokens = text.places[new[row]]
                layers[doc][tokens] = flat[start:end]
                if cache.is_open:
                    cache.put(text.sentences[new[row]].tobytes(), flat[start:end])
    cache.commit()
    return [model.ops.asarray3f(X) for X in layers], _no_backprop


def _from_cache(
    cache: SentenceCache, orths: Ints1d, layers: Any, tokens: Ints1d
) -> bool:
    found = np.empty((len(tokens), *layers.shape[1:]), dtype=np.float32)
    if not cache.get(orths.tobytes(), found):
        return False
    layers[tokens] = found
    return True


def _forward_train(
    model: Model[InT, OutT], docs: InT, text: "_Text", max_tokens: int
) -> Tuple[OutT, Callable[[OutT], InT]]:
    """As `forward`, keeping what it takes to train the biLM."""
    bilm = get_shim(model).bilm
    layers = [_alloc(model, doc) for doc in docs]
    runs: List[Tuple[SentenceBatch, Tensor]] = []
    words, sentences = _index(text, range(len(text.sentences)))
    with torch.enable_grad():
        table = bilm.encode_words(["<S>", "</S>", *words])
        for batch in make_batches(sentences, max_tokens, share=False):
            y, _ = bilm(table, batch)
            flat = y.detach().cpu().numpy()
            for row, (start, end) in zip(batch.rows, batch.spans):
                doc, tokens = text.places[row]
                layers[doc][tokens] = flat[start:end]
            runs.append((batch, y))

    def backprop(d_layers: OutT) -> InT:
        on_host: List[Any] = [model.ops.to_numpy(dX) for dX in d_layers]
        gradients = []
        for batch, y in runs:
            dy = np.zeros(tuple(y.shape), dtype=np.float32)
            for row, (start, end) in zip(batch.rows, batch.spans):
                doc, tokens = text.places[row]
                dy[start:end] = on_host[doc][tokens]
            gradients.append(torch.from_numpy(dy).to(y.device))
        torch.autograd.backward([y for _, y in runs], gradients)
        return []

    return [model.ops.asarray3f(X) for X in layers], backprop


class _Text(NamedTuple):
    """The Docs of a call, cut into sentences.

    sentences: The string ids of the words of each.
    places: For each sentence its Doc's index and its tokens' indices in the Doc.
    strings: The string of each id.
    """

    sentences: List[Ints1d]
    places: List[Tuple[int, Ints1d]]
    strings: List[StringStore]


def _read_docs(docs: InT, segmenter: Segmenter) -> _Text:
    sentences: List[Ints1d] = []
    places: List[Tuple[int, Ints1d]] = []
    for d, doc in enumerate(docs):
        if not len(doc):
            continue
        attrs = doc.to_array([ORTH, IS_SPACE])
        orths: Ints1d = attrs[:, 0]
        is_space = attrs[:, 1].astype(bool)
        for start, end in _spans(segmenter(doc), doc):
            # The language model has never read white space.
            tokens = start + np.flatnonzero(~is_space[start:end])
            if len(tokens):
                sentences.append(orths[tokens])
                places.append((d, tokens))
    return _Text(sentences, places, [doc.vocab.strings for doc in docs])


def _index(text: _Text, chosen: Sequence[int]) -> Tuple[List[str], List[Ints1d]]:
    """The distinct words of some sentences, and for each sentence its words as rows
    of a table that has <S> and </S> before them.
    """
    if not len(chosen):
        return [], []
    parts = [text.sentences[i] for i in chosen]
    orths, first, rows = np.unique(
        np.concatenate(parts), return_index=True, return_inverse=True
    )
    ends = np.cumsum([len(part) for part in parts])
    # Docs of a call may have vocabs of their own.
    where = np.searchsorted(ends, first, side="right")
    words = [
        text.strings[text.places[chosen[i]][0]][orth]
        for orth, i in zip(orths.tolist(), where.tolist())
    ]
    return words, np.split(rows + 2, ends[:-1])


def _spans(spans: Any, doc: Doc) -> List[Tuple[int, int]]:
    """(start, end) of each segment; together they must be the Doc."""
    try:
        found = [(span.start, span.end) for span in spans]
    except (TypeError, AttributeError) as e:
        # The cause may be in a generator of the user's.
        raise ValueError(Errors.E045.format(found=reprlib.repr(spans))) from e
    at = 0
    for start, end in [*found, (len(doc), len(doc))]:
        if start != at or end < start:
            raise ValueError(Errors.E037.format(i=at, n=len(doc)))
        at = end
    return found


def _alloc(model: Model[Any, Any], doc: Doc) -> Any:
    # In the memory of the host: vectors of a whole corpus do not fit a GPU.
    return np.zeros((len(doc), model.get_dim("nL"), model.get_dim("nO")), np.float32)


def _no_backprop(d_layers: OutT) -> InT:
    return []
