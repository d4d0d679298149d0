"""Files of text -> documents. All but .spacy are streamed: one document is in memory at
a time.
"""

from pathlib import Path
from typing import Any, Iterator, List, Union

import srsly
from spacy.attrs import LANG
from spacy.lang.lex_attrs import LEX_ATTRS
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from ..errors import CorpusError, Errors, unusable
from .files import find_texts, kind_of
from .lines import open_text, read_lines

Text = Union[str, List[str], Doc]

# A text without empty lines would be one document; it is cut after this many lines.
MAX_DOCUMENT_LINES = 200
RULES = "spacy.Tokenizer.v1"  # spaCy's own tokenizer, which needs no package


def read_documents(
    path: Path,
    *,
    strict: bool = False,
    keep_empty: bool = False,
    tokenized: bool = False,
    lang: str = "",
) -> Iterator[Union[List[Any], Doc]]:
    """The documents of a file. A .txt is paragraphs, one per line, with an empty line
    after each document: a list of paragraphs each. A .jsonl is spaCy's raw text
    format: one object per line, with "text" or "tokens". A .spacy DocBin gives Docs.

    strict (bool): Whether any byte that is not UTF-8 is an error. Otherwise it is read
        as U+FFFD, and a warning counts the lines: a few of the millions that a language
        model is trained on may be broken. Many are still an error.
    keep_empty (bool): Each line of a .txt is a document, empty lines too; and an empty
        "text" is a paragraph.
    tokenized (bool): Of a "text" and its "tokens", the tokens are read.
    lang (str): The language of the Docs.
    YIELDS (List[str] or List[List[str]] or Doc): Paragraphs of text, or of words.
    RAISES (CorpusError): If the file is damaged.
    """
    kind = kind_of(path) or ".txt"
    try:
        with open_text(path) as file:
            if kind == ".spacy":
                vocab = Vocab({**LEX_ATTRS, LANG: lambda _: lang})
                yield from DocBin().from_bytes(file.read()).get_docs(vocab)
                return
            lines = read_lines(path, file, strict=strict)
            if kind == ".jsonl":
                yield from _read_jsonl(path, lines, keep_empty, tokenized)
            elif keep_empty:
                yield from ([line] for line in lines)
            else:
                yield from _read_txt(lines)
    except CorpusError:
        raise
    except Exception as e:  # each library has its own for a damaged file
        raise unusable(path, f"is not readable as {kind} ({e})") from None


def read_texts(
    path: Path, *, tokenized: bool = False, keep_empty: bool = False, lang: str = ""
) -> Iterator[Text]:
    """The texts of a file: each line of a .txt, each paragraph or list of tokens of a
    .jsonl, each Doc of a .spacy.

    tokenized (bool): Words stand between spaces: lines are split there.
    keep_empty (bool): With the empty lines of a .txt and the empty texts of a .jsonl.
    lang (str): The language of the Docs.
    RAISES (CorpusError): If the file is damaged or is not UTF-8.
    """
    documents = read_documents(
        path, strict=True, keep_empty=keep_empty, tokenized=tokenized, lang=lang
    )
    for document in documents:
        for text in document if isinstance(document, list) else [document]:
            yield text.split() if tokenized and isinstance(text, str) else text


def read_all(path: Union[str, Path], **how: Any) -> Iterator[Text]:
    """The texts of all files that `find_texts` finds, with options of `read_texts`.

    RAISES (CorpusError): If there are none.
    """
    text = None
    for file in find_texts(path):
        for text in read_texts(file, **how):
            yield text
    if text is None:
        raise CorpusError(Errors.E050.format(path=path, problem="it is empty"))


def make_doc(nlp: Language, text: Text) -> Doc:
    """A Doc of a text that `read_texts` gives. A list of words is one sentence.

    RAISES (CorpusError): If the tokenizer takes no such text.
    """
    if isinstance(text, Doc):
        return text
    if isinstance(text, str):
        try:
            return nlp.make_doc(text)
        except Exception as e:  # whatever a tokenizer raises
            reason = f"{type(e).__name__}: {' '.join(str(e).split())}"
            problem = f"its tokenizer fails at the text {text[:40]!r} ({reason})"
            raise unusable("[nlp]", problem) from None
    return Doc(nlp.vocab, words=text, sent_starts=[i == 0 for i in range(len(text))])


def _read_txt(lines: Iterator[str]) -> Iterator[List[str]]:
    paragraphs: List[str] = []
    for line in lines:
        if line:
            paragraphs.append(line)
        if paragraphs and (not line or len(paragraphs) == MAX_DOCUMENT_LINES):
            yield paragraphs
            paragraphs = []
    if paragraphs:
        yield paragraphs


def _read_jsonl(
    path: Path, lines: Iterator[str], keep_empty: bool, tokenized: bool
) -> Iterator[List[Any]]:
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = srsly.json_loads(line)
        except ValueError as e:
            raise unusable(path, f"line {number} is not JSON ({e})") from None
        if tokenized and isinstance(record, dict) and record.get("tokens") is not None:
            record.pop("text", None)
        if isinstance(record, dict) and isinstance(record.get("text"), str):
            text = _without_surrogates(record["text"])
            paragraphs = [p for p in text.splitlines() if p.strip()]
            yield paragraphs or [""] * keep_empty
        elif isinstance(record, dict) and isinstance(record.get("tokens"), list):
            words = record["tokens"]
            for bad in (w for w in words if not _is_word(w)):
                problem = f'line {number}: one of the "tokens" is {bad!r}, no word'
                raise unusable(path, problem)
            yield [[_without_surrogates(str(w)) or "\ufffd" for w in words]]
        else:
            raise unusable(path, f'line {number} has neither "text" nor "tokens"')


def _is_word(token: Any) -> bool:
    return isinstance(token, (str, int, float)) and not isinstance(token, bool)


def _without_surrogates(text: str) -> str:
    # JSON can escape half a character, which neither UTF-8 nor spaCy can hold.
    return text.encode("utf8", "ignore").decode("utf8")
