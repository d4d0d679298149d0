"""Documents -> sentences of words, in one process or in several."""

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_all_start_methods
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from spacy import lang, util
from spacy.language import Language

from ..bilm.tuning import BATCH_DOCUMENTS, MAX_STRINGS
from ..errors import CorpusError, Errors, unusable
from ..processes import map_in_processes
from ..segmenters import segment_sentences
from ..text.documents import make_doc
from .config import CorpusSettings

# The sentences of a document.
Tokenized = List[List[str]]

# The files of the cache hold one word per line.
_LINE_BREAKS = str.maketrans("\n\r", "  ")


@dataclass
class Tokenizer:
    """A document -> sentences of words, by the tokenizer of a spaCy language."""

    nlp_config: Dict[str, Any]  # [nlp] of a config
    settings: CorpusSettings  # [corpus] of a config
    code: Optional[Path] = None  # Python file with functions that [nlp] names
    # Made on first use, in the process that uses it.
    _language: Optional[Language] = field(default=None, init=False)

    def __call__(self, document: Any) -> Tokenized:
        """Split a document.

        document (List[str] or List[List[str]] or Doc): Paragraphs of text, sentences
            of words, or a Doc, whose own boundaries count.
        RETURNS (List[List[str]]): Its sentences, none of them empty.
        RAISES (CorpusError): If the tokenizer cannot be made, or needs a package.
        """
        parts = document if isinstance(document, list) else [document]
        sentences = (sentence for part in parts for sentence in self._sentences(part))
        return [sentence for sentence in sentences if sentence]

    def _sentences(self, part: Any) -> Iterator[List[str]]:
        limit = self.settings.max_length
        if isinstance(part, str) and self.settings.tokenized:
            part = part.split()
        if isinstance(part, list):
            words = _clean(part)
            yield from (words[i : i + limit] for i in range(0, len(words), limit))
            return
        doc = make_doc(self.load(), part) if isinstance(part, str) else part
        for span in segment_sentences(limit)(doc):
            yield _clean(token.text for token in span)

    def load(self) -> Language:
        """The language, made anew when it has seen too many words.

        RAISES (CorpusError): See `load_language`.
        """
        if self._language is None or len(self._language.vocab.strings) >= MAX_STRINGS:
            if self.code is not None:
                util.import_file("python_code", self.code)
            self._language = load_language(self.nlp_config)
        return self._language


def load_language(nlp_config: Dict[str, Any]) -> Language:
    """A pipeline of nothing but a tokenizer, which takes a text of any length, from
    [nlp] of a config.

    RAISES (CorpusError): If spaCy does not know the language, or if its tokenizer
        needs a package that is not here.
    """
    config = {"nlp": {**nlp_config, "pipeline": []}, "components": {}}
    name = nlp_config.get("lang")
    try:
        found = util.load_model_from_config(config, auto_fill=True)
    except Exception as e:  # whatever the language or its tokenizer raises
        if "[E048]" in str(e) or "[E958]" in str(e):
            known = [m.name for m in iter_modules(lang.__path__) if m.ispkg]
            meant = _meant_language(str(name), known)
            hint = f" Did you mean {meant}?" if meant else ""
            problem = Errors.E135.format(lang=name, hint=hint, known=", ".join(known))
        elif isinstance(e, ImportError):
            problem = Errors.E136.format(lang=name, reason=e)
        else:
            problem = str(unusable("[nlp]", str(e)))
        raise CorpusError(problem) from None
    # spaCy's limit on the length of a text is for its parser.
    found.max_length = sys.maxsize
    return found


def _meant_language(tag: str, known: List[str]) -> Optional[str]:
    code = tag.replace("_", "-").split("-")[0].lower()  # of "pt-BR" it is "pt"
    if code in known:
        return code
    with suppress(ValueError):  # of older spaCys, if it is no tag at all
        return util.find_matching_language(code)  # of "deu" it is "de"
    return None


def tokenize(
    documents: Iterable[Tuple[int, Any]], tokenizer: Tokenizer, n_process: int
) -> Iterator[Tuple[int, Tokenized]]:
    """Tokenize documents, a few batches ahead of the reader and no more.

    documents (Iterable[Tuple[int, Any]]): A number, which is passed on, and a
        document (see `Tokenizer`).
    n_process (int): 1 stays in this process.
    YIELDS (Tuple[int, List[List[str]]]): The sentences of each document, in order.
    """
    if n_process == 1:
        yield from ((i, tokenizer(document)) for i, document in documents)
        return
    # Not fork: torch may have threads already.
    start = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    batches = util.minibatch(documents, BATCH_DOCUMENTS)  # type: ignore[no-untyped-call]
    for batch in map_in_processes(
        _tokenize_batch, tokenizer, batches, n_process, start
    ):
        yield from batch


def _clean(words: Iterable[str]) -> List[str]:
    """The words that are not blank, with spaces for line breaks."""
    return [w.translate(_LINE_BREAKS) for w in words if w and not w.isspace()]


def _tokenize_batch(
    tokenizer: Tokenizer, batch: List[Tuple[int, Any]]
) -> List[Tuple[int, Tokenized]]:
    return [(i, tokenizer(document)) for i, document in batch]
