"""Files of text -> batches of Docs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Optional

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span

# A batch of Docs, and the longest Doc: 50 MB of layers of the original model.
BATCH_TOKENS = 4096
# Of a batch that is not tokenized yet.
BATCH_CHARACTERS = 16_384


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
    files (Iterable[Path]): What `pretraining.text.find_texts` found.
    segmenter (Callable[[Doc], Iterable[Span]]): Where a long Doc may be cut.
    tokenized (bool): Words stand between blanks.
    limit (int): Stop after so many tokens.
    YIELDS (List[Doc]): A batch. No Doc of it is much longer than BATCH_TOKENS.
    RAISES (CorpusError): If a file is damaged, or is not UTF-8.
    """
    from tqdm import tqdm

    left = sys.maxsize if limit is None else limit
    with tqdm(unit=" words", unit_scale=True, disable=None, desc="Corpus") as bar:
        for parts in _batch(_read_parts(files, tokenized)):
            with nlp.memory_zone():
                docs = [
                    piece
                    for part in parts
                    for piece in _cut(make_doc(nlp, part), segmenter)
                ]
                for batch in _batch(docs, BATCH_TOKENS):
                    batch = list(_take(batch, left))
                    n_tokens = sum(map(len, batch))
                    left -= n_tokens
                    yield batch
                    bar.update(n_tokens)
            if left <= 0:
                return


def _read_parts(files: Iterable[Path], tokenized: bool) -> Iterator[Any]:
    """Paragraphs, lists of words, and Docs."""
    from ..text import read_documents

    for file in files:
        for document in read_documents(file, strict=True):
            for part in document if isinstance(document, list) else [document]:
                is_text = isinstance(part, str)
                yield part.split() if is_text and tokenized else part


def _batch(parts: Iterable[Any], size: int = BATCH_CHARACTERS) -> Iterator[List[Any]]:
    """Batches whose lengths, but for the last part of each, are below a size."""
    batch: List[Any] = []
    total = 0
    for part in parts:
        batch.append(part)
        total += len(part)
        if total >= size:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def make_doc(nlp: "Language", part: Any) -> "Doc":
    """A Doc of a text or of a list of words; a Doc stays what it is."""
    from spacy.tokens import Doc

    if isinstance(part, str):
        return nlp.make_doc(part)
    doc: Doc = Doc(nlp.vocab, words=part) if isinstance(part, list) else part
    return doc


def _cut(doc: "Doc", segmenter: Any) -> Iterator["Doc"]:
    """A Doc, or where it is long pieces of it that are whole sentences."""
    if len(doc) <= BATCH_TOKENS:
        yield doc
        return
    for spans in _batch(segmenter(doc), BATCH_TOKENS):
        yield doc[spans[0].start : spans[-1].end].as_doc()


def _take(docs: Iterable["Doc"], n_tokens: int) -> Iterator["Doc"]:
    """Docs until there are so many tokens."""
    for doc in docs:
        if n_tokens <= 0:
            return
        yield doc if len(doc) <= n_tokens else doc[:n_tokens].as_doc()
        n_tokens -= len(doc)
