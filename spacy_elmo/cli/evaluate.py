from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Union

import srsly
from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors
from ._app import app, plain_errors

if TYPE_CHECKING:
    from ..pretraining.config import CorpusSettings

STATES = ("zero", "carried")


@app.command("evaluate")
def evaluate_cli(
    weights: str = Arg(
        ..., help="Name or path of a model that 'spacy elmo pretrain' wrote"
    ),
    text: str = Arg(
        ...,
        help="Text: a file, a directory or a glob (.txt, .jsonl or .spacy, compressed "
        "or not)",
    ),
    vocab_path: Optional[Path] = Opt(
        None,
        "--vocab",
        "-v",
        help="Words of the softmax; by default vocab.txt beside the weights",
    ),
    state: str = Opt(
        "zero",
        "--state",
        "-s",
        help="LSTM state: 'zero' at each sentence, or 'carried' along each document",
    ),
    lang: Optional[str] = Opt(
        None,
        "--lang",
        "-l",
        help="Language whose tokenizer reads the text; by default that of config.cfg "
        "beside the weights, else 'en'",
    ),
    tokenized: Optional[bool] = Opt(
        None,
        "--tokenized/--raw",
        help="Lines are sentences whose words stand between blanks; by default as in "
        "config.cfg beside the weights",
    ),
    output_path: Optional[Path] = Opt(
        None, "--output", "-o", help="Output JSON file for the metrics", dir_okay=False
    ),
) -> None:
    """
    Evaluate a pretrained biLM on held-out text: perplexity by the exact full
    softmax, forward, backward and average, and bits per character.
    """
    with plain_errors():
        metrics = evaluate(
            weights,
            text,
            vocab_path=vocab_path,
            state=state,
            lang=lang,
            tokenized=tokenized,
            output_path=output_path,
        )
    msg.table(
        {
            "Perplexity, forward": f"{metrics['forward']:.2f}",
            "Perplexity, backward": f"{metrics['backward']:.2f}",
            "Perplexity, average": f"{metrics['average']:.2f}",
            "Bits per character": f"{metrics['bits_per_character']:.4f}",
            "Tokens": f"{metrics['n_tokens']:,}",
            "of which unknown": f"{metrics['n_unknown']:,}",
            "LSTM state": metrics["state"],
        }
    )


def evaluate(
    weights: Union[str, Path],
    text: str,
    *,
    vocab_path: Optional[Path] = None,
    state: str = "zero",
    lang: Optional[str] = None,
    tokenized: Optional[bool] = None,
    output_path: Optional[Path] = None,
) -> Dict[str, Any]:
    """Evaluate a pretrained biLM.

    RETURNS (Dict[str, Any]): What `pretraining.evaluation.Perplexity` holds, and the
        state.
    RAISES (WeightsError): If the model cannot be read, or has no softmax.
    RAISES (CorpusError): If the text or the vocabulary cannot be used.
    """
    from ..bilm import BiLM
    from ..pretraining.corpus import load_corpus
    from ..pretraining.corpus_files import Recipe
    from ..pretraining.evaluation import evaluate as evaluate_bilm
    from ..pretraining.language_model import read_softmax, vocabulary_beside
    from ..pretraining.vocabulary import read_vocabulary
    from ..weights import resolve

    if state not in STATES:
        wanted = " or ".join(map(repr, STATES))
        problem = Errors.E038.format(name="--state", wanted=wanted, found=state)
        raise CorpusError(problem)
    path = resolve(weights)
    bilm = BiLM.from_path(path)
    softmax = read_softmax(path, bilm.options.lstm.projection_dim)
    vocab_path = vocab_path or vocabulary_beside(path)
    if not vocab_path.is_file():
        problem = "is not there. Give --vocab the file with the words of the softmax"
        raise CorpusError(Errors.E051.format(path=vocab_path, problem=problem))
    vocabulary = read_vocabulary(vocab_path)
    if len(vocabulary) != softmax.vocab_size:
        problem = f"has {len(vocabulary)} words, but the softmax {softmax.vocab_size}"
        raise CorpusError(Errors.E051.format(path=vocab_path, problem=problem))
    nlp, settings = _tokenization(path, lang, tokenized)
    width = bilm.options.char_cnn.max_characters_per_token
    recipe = Recipe(nlp, settings, vocabulary, max_characters=width)
    with TemporaryDirectory() as cache:
        corpus = load_corpus(text, Path(cache) / "corpus", recipe)
        found = evaluate_bilm(bilm, softmax, corpus, state=state)
    metrics = {**found.to_dict(), "state": state}
    if output_path is not None:
        srsly.write_json(output_path, metrics)
    return metrics


def _tokenization(
    weights: Path, lang: Optional[str], tokenized: Optional[bool]
) -> Tuple[Dict[str, Any], "CorpusSettings"]:
    """[nlp] and [corpus] of the config that the model was trained by, where it is
    known, with what the command line says instead.
    """
    from ..pretraining.config import CorpusSettings, make_section, read_config

    beside = (weights if weights.is_dir() else weights.parent) / "config.cfg"
    config = dict(read_config(beside)) if beside.is_file() else {}
    nlp = dict(config.get("nlp") or {"lang": "en"}) if lang is None else {"lang": lang}
    settings = make_section(CorpusSettings, config.get("corpus"), "corpus")
    if tokenized is not None:
        settings = replace(settings, tokenized=tokenized)
    # Held-out text is read as it stands.
    return nlp, replace(settings, ascii_quotes=0.0)
