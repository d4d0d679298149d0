"""What several commands take: options, pipelines, texts."""

import re
import sys
from contextlib import suppress
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple

import srsly
from catalogue import RegistryError
from spacy.cli._util import Arg, Opt, import_code
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import is_package, load_model
from thinc.api import Config

from .. import registry
from ..errors import CorpusError, Errors, WeightsError, require
from ..storage import beside
from ..text.documents import RULES, make_doc, read_all

if TYPE_CHECKING:
    from ..pipeline.component import ELMo
    from ..pipeline.vector_hooks import Layer
    from ..pretraining.config import Sections
    from ..pretraining.tokenizer import Tokenizer

DEFAULT_WEIGHTS = "en_elmo_sm"
# Texts are read in batches of this length: characters, or tokens if they are split into
# words. At the original size, the layers of this many tokens take 200 MB.
BATCH_LENGTH = 16_384
# As PEP 440 writes it.
PACKAGE_VERSION = (
    r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?"
    r"(\+[a-z0-9]+(\.[a-z0-9]+)*)?"
)


def _import(path: Optional[Path]) -> Optional[Path]:
    import_code(path)
    return path


# Options of a path
FILE: Any = {"exists": True, "dir_okay": False}

FILES = "a file, a directory or a glob (.txt, .jsonl or .spacy, compressed or not)"
LAYERS = "'top', 'mean' of all, a number (0 is the token layer), or weights: .2,.3,.5"
TEXT = Arg(..., help=f"Text: {FILES}")
WEIGHTS = Opt(None, "--weights", "-w", help="Name or path of a biLM [en_elmo_sm]")
PIPELINE = Opt(None, "--pipeline", "-p", help="Pipeline with 'elmo'; of two, the last")
LANG = Opt(None, "--lang", "-l", help="Language of the text [as in training, or en]")
TOKENIZED = Opt(None, "--tokenized/--raw", help="Split at spaces only [as in training]")
CODE = Opt(
    None, "--code", help="Python file with registered functions, to import",
    callback=_import, **FILE,
)  # fmt: skip
VOCAB = Opt(None, "--vocab", "-v", help="Words of the softmax [vocab.txt beside it]")
JSON = Opt(False, "--json", "-j", help="Print JSON")


def read_sections(weights: Path) -> Optional["Sections"]:
    """[nlp] and [corpus] of the config that a model was trained with, or the language
    of the pipeline that it is a part of. None if there is neither.
    """
    from ..pretraining.config import check_sections, read_config

    path, whole = beside(weights, "config.cfg"), weights.parent
    if path.is_file():
        config = read_config(path)
        if not _is_pipelines(config):
            return check_sections(_only(config, "nlp", "corpus"))
    elif (whole / "meta.json").is_file() and (whole / "config.cfg").is_file():
        config = read_config(whole / "config.cfg")
        if _is_pipelines(config):
            return check_sections({"nlp": _only(config["nlp"], "lang", "tokenizer")})
    return None


def _is_pipelines(config: Config) -> bool:
    return "components" in config or "corpora" in config


def _only(section: Dict[str, Any], *keys: str) -> Dict[str, Any]:
    return {key: section[key] for key in keys if key in section}


def read_tokenizer(
    weights: Path, lang: Optional[str], tokenized: Optional[bool]
) -> "Tokenizer":
    """The tokenizer that a model was trained with, as far as is known. The options of
    the command line come first.
    """
    from ..pretraining.config import Sections
    from ..pretraining.tokenizer import Tokenizer

    found = read_sections(weights) or Sections()
    # Processes would be of the machine that trained, and know nothing of --code.
    update: Dict[str, Any] = {"n_process": 1}
    if tokenized is not None:
        update["tokenized"] = tokenized
    settings = found.corpus.as_it_stands().model_copy(update=update)
    return Tokenizer(found.nlp if lang is None else {"lang": lang}, settings)


def write_tokenizer(weights: Path, output: Path) -> None:
    """Write the part of a model's config.cfg that says how its text was tokenized, if
    that is known: the rest has paths of the machine that trained.
    """
    if read_sections(weights) is not None:
        tokenizer = read_tokenizer(weights, None, None)
        kept = {"nlp": tokenizer.nlp_config, "corpus": tokenizer.settings.model_dump()}
        Config(kept).to_disk(output / "config.cfg")


def read_meta(path: Path) -> Dict[str, Any]:
    """A meta.json; empty if there is no such file.

    RAISES (WeightsError): If it is no JSON object.
    """
    try:
        return dict(srsly.read_json(path)) if path.is_file() else {}
    except (ValueError, TypeError) as e:
        raise WeightsError(Errors.E006.format(path=path, reason=e)) from None


def is_package_name(name: object) -> bool:
    is_name = isinstance(name, str) and name.isidentifier() and name.isascii()
    return is_name and not iskeyword(str(name))


def require_version(version: object) -> None:
    """RAISES (ValueError): If a package can have no such version."""
    is_good = (
        isinstance(version, str) and re.fullmatch(PACKAGE_VERSION, version) is not None
    )
    wanted = "a string such as '0.1.0' or '2.0rc1'"
    require(is_good, "version (--version, or in meta.json)", wanted, version)


def require_other(output: Path, inputs: Iterable[Path]) -> None:
    """RAISES (CorpusError): If a command would replace what it reads."""
    if output.exists() and any(map(output.samefile, inputs)):
        raise CorpusError(Errors.E111.format(path=output))


def load_pipeline(name: str) -> Language:
    """Load a pipeline, given its name or path; a biLM is an error."""
    if name in registry.weights or (Path(name) / "options.json").is_file():
        raise CorpusError(Errors.E123.format(name=name))
    try:
        # A package may be called as pip writes it.
        return load_model(name.replace("-", "_") if is_package(name) else name)
    except OSError:
        best = Path(name) / "model-best"  # of what 'spacy train' writes
        if not best.is_dir():
            raise
        raise CorpusError(Errors.E129.format(name=name, best=best)) from None
    except (ValueError, ImportError) as e:
        # A component, a language or another function that only its code registers.
        is_unknown = str(e).startswith(("[E002]", "[E048]"))
        if not (is_unknown or isinstance(e, RegistryError)):
            raise
        reason = str(e).partition("\n")[0]
        raise CorpusError(Errors.E128.format(name=name, reason=reason)) from None


def load_reader(
    weights: Optional[str],
    pipeline: Optional[str],
    lang: Optional[str],
    tokenized: Optional[bool],
) -> Tuple[Language, bool]:
    """Load the pipeline that the options of a command name.

    RETURNS (Tuple[Language, bool]): The pipeline, and whether texts are to be split at
        spaces only.
    RAISES (CorpusError): If the options exclude each other.
    """
    from ..pretraining.tokenizer import load_language
    from ..weights import resolve

    if pipeline is None:
        weights = DEFAULT_WEIGHTS if weights is None else weights
        tokenizer = read_tokenizer(resolve(weights), lang, tokenized)
        tokenized = tokenizer.settings.tokenized
        rules = {"tokenizer": {"@tokenizers": RULES}} if tokenized else {}
        nlp = load_language({**tokenizer.nlp_config, **rules})
        nlp.add_pipe("elmo", config={"model": {"weights": weights}})
    elif weights is None and lang is None:
        nlp = load_pipeline(pipeline)
        # spaCy's limit on the length of a text is for its parser.
        nlp.max_length = sys.maxsize
    else:
        raise CorpusError(Errors.E126)
    return nlp, bool(tokenized)


def find_elmo(nlp: Language, pipeline: Optional[str]) -> "ELMo":
    """The last `elmo` component of a pipeline, whose layers its Docs keep. It is an
    error if there is none.
    """
    from ..pipeline.component import ELMo

    found = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, ELMo)]
    if not found:
        raise CorpusError(Errors.E122.format(pipeline=pipeline))
    elmo = found[-1]
    elmo.model.initialize()
    return elmo


def components_after(nlp: Language, elmo: "ELMo") -> List[str]:
    """What need not run for the vectors. Components before `elmo` may set the sentences
    that it reads.
    """
    names = nlp.component_names
    return names[names.index(elmo.name) + 1 :]


def choose_layer(elmo: "ELMo", layer: str) -> "Layer":
    """The layer that an option names; one that the biLM lacks is an error."""
    from ..pipeline.vector_hooks import check_layer

    choice: Layer = int(layer) if layer.isdecimal() else layer
    if "," in layer:
        with suppress(ValueError):  # check_layer says what it may be
            choice = [float(s) for s in layer.split(",")]
    check_layer(choice, elmo.model.get_dim("nL"))
    return choice


def read_batches(
    nlp: Language, text: str, tokenized: bool, limit: Optional[int] = None
) -> Iterator[List[Doc]]:
    """Read a text as batches of Docs, with a progress bar.

    limit (int): Stop after the batch that reaches this number of tokens.
    YIELDS (List[Doc]): A batch. It is valid until the next one is read: then its words
        leave the vocab.
    RAISES (CorpusError): If there is no text, or if it is damaged or not UTF-8.
    """
    from tqdm import tqdm

    texts = read_all(text, tokenized=tokenized, lang=nlp.lang)
    left = limit or sys.maxsize
    with tqdm(unit=" words", unit_scale=True, disable=None, desc="Corpus") as bar:
        for part in batch_by_length(texts, BATCH_LENGTH):
            with nlp.memory_zone():
                docs = [make_doc(nlp, text) for text in part]
                yield docs
                n_tokens = sum(map(len, docs))
            bar.update(n_tokens)
            left -= n_tokens
            if left <= 0:
                return


def batch_by_length(parts: Iterable[Any], size: int) -> Iterator[List[Any]]:
    """Batches in order, each as short as possible with at least `size` in length.
    spaCy's minibatch_by_words puts a part that is too long before its neighbors.
    """
    found: List[Any] = []
    total = 0
    for part in parts:
        found.append(part)
        total += max(1, len(part))  # empty lines without end would fill the memory
        if total >= size:
            yield found
            found, total = [], 0
    if found:
        yield found
