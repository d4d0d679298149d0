"""What several commands take: options, pipelines, texts, mixes."""

import sys
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
    Union,
)

from spacy.cli._util import Arg, Opt

from ..errors import CorpusError, Errors, unusable

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span

    from ..pipeline.component import ELMo
    from ..pretraining.config import CorpusSettings

DEFAULT_WEIGHTS = "en_elmo_sm"
# A batch of Docs, and the longest Doc: 50 MB of layers of the original model.
BATCH_TOKENS = 4096
# Of a batch that is not tokenized yet.
BATCH_CHARACTERS = 16_384

TEXT = Arg(
    ...,
    help="Text: a file, a directory or a glob (.txt, .jsonl or .spacy, compressed or "
    "not)",
)
WEIGHTS = Opt(
    None,
    "--weights",
    "-w",
    help=f"Name or path of a biLM; '{DEFAULT_WEIGHTS}' by default",
)
PIPELINE = Opt(
    None,
    "--pipeline",
    "-p",
    help="Pipeline whose 'elmo' component and tokenizer are used instead",
)
LANG = Opt(
    None,
    "--lang",
    "-l",
    help="Language whose tokenizer reads the text; by default that of config.cfg "
    "beside the weights, else 'en'",
)
TOKENIZED = Opt(
    None,
    "--tokenized/--raw",
    help="Words stand between blanks; by default as in config.cfg beside the weights",
)
VOCAB = Opt(
    None,
    "--vocab",
    "-v",
    help="Words of the softmax; by default vocab.txt beside the weights",
)
JSON = Opt(False, "--json", "-j", help="Print JSON")


def read_tokenization(
    weights: Path, lang: Optional[str], tokenized: Optional[bool]
) -> Tuple[Dict[str, Any], "CorpusSettings"]:
    """[nlp] and [corpus] of the config that a model was trained by, where it is
    known, with what the command line says instead.
    """
    from ..pretraining.config import CorpusSettings, check_section, read_config

    beside = (weights if weights.is_dir() else weights.parent) / "config.cfg"
    config = dict(read_config(beside)) if beside.is_file() else {}
    nlp = dict(config.get("nlp") or {"lang": "en"}) if lang is None else {"lang": lang}
    settings = check_section(CorpusSettings, config.get("corpus") or {}, "corpus")
    if tokenized is not None:
        settings = settings.model_copy(update={"tokenized": tokenized})
    return nlp, settings.as_it_stands()


def load_elmo(
    weights: Optional[str],
    pipeline: Optional[str],
    lang: Optional[str],
    tokenized: Optional[bool],
    layer: Union[int, str] = "top",
) -> Tuple["Language", "ELMo", bool]:
    """A pipeline and its `elmo` component.

    weights (str): Name or path of a biLM, for a pipeline that is made here.
    pipeline (str): Name or path of a pipeline that has the component, instead.
    lang (str): Its language; None as in config.cfg beside the weights, or "en".
    tokenized (bool): Whether the words of texts stand between blanks; None as there.
    layer (int or str): A layer that the biLM must have.
    RETURNS (Tuple[Language, ELMo, bool]): The pipeline, whose tokenizer is wanted,
        the component, and what is known of `tokenized`.
    RAISES (CorpusError): If both or a pipeline without the component is given.
    RAISES (WeightsError): If there are no such weights.
    """
    from spacy.util import load_model, load_model_from_config

    from ..pipeline.component import ELMo
    from ..pipeline.vector_hooks import check_layer
    from ..weights import resolve

    if pipeline is not None:
        if weights is not None:
            raise CorpusError(Errors.E126)
        nlp = load_model(pipeline)
    else:
        weights = weights or DEFAULT_WEIGHTS
        config, settings = read_tokenization(resolve(weights), lang, tokenized)
        tokenized = settings.tokenized
        try:
            config = {"nlp": {**config, "pipeline": []}, "components": {}}
            nlp = load_model_from_config(config, auto_fill=True)
        except Exception as e:  # whatever the language or its tokenizer raises
            where = "--lang" if lang is not None else "[nlp] in config.cfg"
            raise unusable(where, str(e).rstrip(".")) from None
        nlp.add_pipe("elmo", config={"model": {"weights": weights}})
    elmos = [pipe for _, pipe in nlp.components if isinstance(pipe, ELMo)]
    if not elmos:
        raise CorpusError(Errors.E122.format(pipeline=pipeline))
    # spaCy's limit on the length of a text is for its parser.
    nlp.max_length = sys.maxsize
    elmos[0].model.initialize()
    try:
        check_layer(layer, elmos[0].model.get_dim("nL"))
    except ValueError as e:
        raise CorpusError(str(e)) from None
    return nlp, elmos[0], bool(tokenized)


def read_batches(
    nlp: "Language",
    files: Iterable[Path],
    segmenter: Callable[["Doc"], Iterable["Span"]],
    *,
    tokenized: bool = False,
    limit: Optional[int] = None,
) -> Iterator[List["Doc"]]:
    """Files of text as batches of Docs, with a progress bar in a terminal. A batch is
    good until the next one is asked for: then its words leave the vocab again.

    nlp (Language): Its tokenizer runs.
    files (Iterable[Path]): What `text.find_texts` found.
    segmenter (Callable[[Doc], Iterable[Span]]): Where a long Doc may be cut.
    tokenized (bool): Words stand between blanks.
    limit (int): Stop after the batch that reaches so many tokens.
    YIELDS (List[Doc]): A batch. No Doc of it is much longer than BATCH_TOKENS.
    RAISES (CorpusError): If a file is damaged, or is not UTF-8.
    """
    from tqdm import tqdm

    from ..text import read_texts

    texts = (text for file in files for text in read_texts(file, tokenized=tokenized))
    left = limit or sys.maxsize
    with tqdm(unit=" words", unit_scale=True, disable=None, desc="Corpus") as bar:
        for part in batch_by_length(texts, BATCH_CHARACTERS):
            with nlp.memory_zone():
                docs = (make_doc(nlp, text) for text in part)
                pieces = (piece for doc in docs for piece in _cut(doc, segmenter))
                for batch in batch_by_length(pieces, BATCH_TOKENS):
                    yield batch
                    n_tokens = sum(map(len, batch))
                    bar.update(n_tokens)
                    left -= n_tokens
                    if left <= 0:
                        return


def make_doc(nlp: "Language", text: Any) -> "Doc":
    """A Doc of a text or of a list of words; a Doc stays what it is."""
    from spacy.tokens import Doc

    if isinstance(text, str):
        return nlp.make_doc(text)
    doc: Doc = Doc(nlp.vocab, words=text) if isinstance(text, list) else text
    return doc


def find_mixes(nlp: "Language") -> Iterator[Tuple[str, Any, Any]]:
    """The mixes in the components of a pipeline, in its order; disabled components
    count too.

    YIELDS (Tuple[str, Model, Model]): The component's name, the encoder that the mix
        reads (a listener, or a biLM), and the mix.
    """
    from thinc.api import Model

    for name, component in nlp.components:
        model = getattr(component, "model", None)
        for node in model.walk() if isinstance(model, Model) else ():
            for encoder, mix in zip(node.layers, node.layers[1:]):
                if mix.name == "elmo-mix":
                    yield name, encoder, mix


def batch_by_length(parts: Iterable[Any], size: int) -> Iterator[List[Any]]:
    """Batches whose lengths, but for the last part of each, are below a size."""
    found: List[Any] = []
    total = 0
    for part in parts:
        found.append(part)
        total += len(part)
        if total >= size:
            yield found
            found, total = [], 0
    if found:
        yield found


def _cut(doc: "Doc", segmenter: Any) -> Iterator["Doc"]:
    """A Doc, or where it is long pieces of it that are whole sentences."""
    if len(doc) <= BATCH_TOKENS:
        yield doc
        return
    for spans in batch_by_length(segmenter(doc), BATCH_TOKENS):
        yield doc[spans[0].start : spans[-1].end].as_doc()
