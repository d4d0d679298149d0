import glob
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

import srsly
import typer
from spacy.cli._util import Arg, Opt
from spacy.language import Language
from thinc.api import Config
from wasabi import msg

from ..errors import (
    CorpusError,
    Errors,
    Warnings,
    require,
    require_number,
    require_same,
    unusable,
)
from ..processes import handling
from ..recipe import treebank as tb
from ..recipe.raw_text import Survey, split_text
from ..recipe.steps import LOCK_FILE
from ..storage import hold, temporary_folder
from ..text.documents import RULES
from ..text.files import CORPUS, PROJECT, find_texts
from ._app import app
from .inputs import FILE, FILES, is_package_name, require_version

TREEBANK = "Annotated sentences (.conllu, .iob, .conll, .spacy); may be repeated"
# Below this, the tokenizer and the treebank follow different rules.
MIN_AGREEMENT = 0.95
LITTLE_WORDS = 500_000
REFERENCE_LENGTH = 50  # max_characters_per_token of the official models
# So no temporary folder is left, and no step goes on alone.
LIKE_CTRL_C = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


@app.command("init")
@handling(LIKE_CTRL_C, signal.default_int_handler)
def init_cli(
    text: str = Arg(..., help=f"Raw text: {FILES}"),
    output_path: Path = Arg(..., help="Directory for the project", file_okay=False),
    lang: str = Opt(..., "--lang", "-l", help="spaCy's language code"),
    treebank: List[Path] = Opt([], "--treebank", "-t", help=TREEBANK, **FILE),
    dev: List[Path] = Opt(
        [], "--dev", "-d", help="One per --treebank; default: a tenth of it", **FILE
    ),
    hours: float = Opt(1.0, "--hours", "-H", min=0.001, help="Time for pretraining"),
    name: str = Opt("pipeline", "--name", "-n", help="Name of the pipeline's package"),
    version: str = Opt("0.1.0", "--version", "-v", help="Version of the packages"),
    license: Optional[str] = Opt(
        None, "--license", "-L", help="License of the packages; asked for if not given"
    ),
    sources: Optional[str] = Opt(
        None, "--sources", "-s", help="The text it learns from; asked for if not given"
    ),
    tokenizer: Optional[str] = Opt(
        None, "--tokenizer", help=f"Registered tokenizer, for instance {RULES}"
    ),
    tokenized: bool = Opt(
        False, "--tokenized/--raw", help="Lines are sentences, split at spaces only"
    ),
    config_path: Optional[Path] = Opt(
        None,
        "--config",
        "-c",
        help="Of pretraining; default: pretrain_small.cfg",
        **FILE,
    ),
    run: bool = Opt(True, "--run/--no-run", help="Run the project, or only write it"),
) -> None:
    """
    Go from raw text to a packaged pipeline with its own ELMo. The command checks text
    and annotated sentences, measures how fast this machine trains, writes a spaCy
    project for it, and runs that. Run the same command again to resume.
    """
    from spacy.cli.package import has_build, has_wheel

    from ..recipe.project import change_meta

    if run and treebank and not (has_build() or has_wheel()):
        raise CorpusError(Errors.E134)
    name = name.removeprefix(f"{lang}_")  # spacy package puts it in front
    if not is_package_name(name):  # found now, not after the training
        raise CorpusError(Errors.E139.format(name=name))
    require_version(version)
    require_number("--hours", hours, 0.001)  # nor infinite
    given: Dict[str, Any] = {
        "lang": lang, "name": name, "version": version, "hours": hours,
        "text": absolute(text), "tokenized": tokenized,
        "treebank": [str(path.resolve()) for path in treebank],
        "dev": [str(path.resolve()) for path in dev], "tokenizer": tokenizer,
        "config": config_path and str(config_path.resolve()),
    }  # fmt: skip
    path = output_path / PROJECT
    if path.is_file():
        found = read_variables(path)
        require_same(path, found, given)
        asked = {"license": license, "sources": sources}
        changed = {k: v for k, v in asked.items() if v not in (None, found.get(k))}
        require_plain(changed)
        if changed:
            change_meta(output_path, changed)
        msg.good(f"Found its spaCy project in {output_path}")
    else:
        find_texts(text)  # a bad path fails before the questions
        given["license"] = ask(license, "License of the packages")
        given["sources"] = ask(sources, "What the text is, for the model card")
        require_plain(given)
        write(output_path, given)
    if run:
        run_project(output_path)


def absolute(text: str) -> str:
    """The path of a text from everywhere. The current folder is no part of a glob."""
    text = os.path.expanduser(text)
    if Path(text).exists():
        return str(Path(text).resolve())
    return os.path.normpath(os.path.join(glob.escape(os.getcwd()), text))


def read_variables(path: Path) -> Dict[str, Any]:
    """The variables of a project.

    RAISES (CorpusError): If it is none that `init` has written.
    """
    try:
        return dict(dict(srsly.read_yaml(path))["vars"])
    except (ValueError, TypeError, KeyError):
        raise CorpusError(Errors.E111.format(path=path)) from None


def require_plain(variables: Dict[str, Any]) -> None:
    """RAISES (ValueError): If spaCy would not read the variables of a project."""
    for key, value in variables.items():
        wanted = "text without ${, which means a variable to spaCy"
        require("${" not in str(value), key, wanted, value)


def ask(given: Optional[str], question: str) -> str:
    """The value of an option; without one, ask the user if there is a terminal."""
    if given is None and sys.stdin and sys.stdin.isatty():
        given = typer.prompt(question, default="", show_default=False)
    if not given:
        msg.warn(f"{question}: not given")
    return given or ""


def write(output: Path, given: Dict[str, Any]) -> None:
    """Check text and treebank, measure the machine, and write the project.

    given (Dict[str, Any]): The variables of the project.
    RAISES (CorpusError): If language, text or treebank cannot be used.
    """
    from ..pretraining.tokenizer import load_language
    from ..recipe.configs import PRETRAINING, pretrain_config, shipped_config
    from ..recipe.pace import measure_pace, set_length
    from ..recipe.project import write_project

    nlp_config: Dict[str, Any] = {"lang": given["lang"]}
    if given["tokenizer"] or given["tokenized"]:
        nlp_config["tokenizer"] = {"@tokenizers": given["tokenizer"] or RULES}
    language = load_language(nlp_config)
    path = given["config"] or shipped_config(PRETRAINING)
    parts = [output / name for name in (CORPUS, "configs", PROJECT)]
    made = [output / name for name in ("bilm", "training", "packages")]
    for part in [*parts, *made]:
        if part.exists():
            raise CorpusError(Errors.E111.format(path=part))
    busy = CorpusError(Errors.E114.format(path=output))
    with hold(output / LOCK_FILE, busy), temporary_folder(output, ".init.") as folder:
        corpus = folder / CORPUS
        corpus.mkdir()
        treebanks = given["treebank"], given["dev"]
        components, n_dev = convert(*treebanks, corpus, language)
        survey = split_text(given["text"], corpus, given["tokenized"], given["lang"])
        config = pretrain_config(path, nlp_config, given["tokenized"], survey)
        print_survey(survey, config)
        msg.text("Measuring how fast this machine trains, by a few steps ...")
        pace = measure_pace(config, survey, corpus, given["hours"])
        epochs = set_length(config, survey, pace, given["hours"])
        tokens, speed = config["training"]["max_tokens"], pace.tokens_per_second
        msg.good(
            f"Pretraining: {tokens:,} tokens, punctuation and ends of sentences "
            f"included ({epochs:.1f} times the text), {tokens / speed / 3600:.2f} "
            f"hours at {speed:,.0f} tokens per second; a vocabulary of up to "
            f"{config['vocabulary']['max_size']:,} words"
        )
        write_project(folder, config, components, given, n_dev)
        for part in parts:  # project.yml last: where it is, the project is whole
            (folder / part.name).rename(part)
    msg.good(f"Wrote a spaCy project to {output}")


def convert(
    treebank: List[str], dev: List[str], corpus: Path, language: Language
) -> Tuple[List[str], int]:
    """Convert the treebanks. Find the components that can learn from them, and the
    number of tokens that an evaluation of those reads.
    """
    if dev and len(dev) != len(treebank):
        raise CorpusError(Errors.E131.format(n_dev=len(dev), n=len(treebank)))
    components: Set[str] = set()
    n_dev = 0
    for i, path in enumerate(treebank):
        if dev and Path(dev[i]).samefile(path):
            raise unusable(path, "is given as --treebank and as its --dev")
        docs = tb.read_treebank(Path(path))
        dev_docs = tb.read_treebank(Path(dev[i])) if dev else None
        wanted = tb.components_for(docs)
        found = wanted if dev_docs is None else tb.components_for(dev_docs)
        if lacks := [tb.ANNOTATION[name] for name in wanted if name not in found]:
            what = ", ".join(lacks)
            problem = f"has no {what}, unlike {path}. Give it in both, or in neither"
            raise unusable(dev[i], problem)
        # The number keeps two files of the same name apart.
        name = f"{i + 1}-{Path(path).stem}"
        n_dev += tb.write_split(Path(path), docs, dev_docs, corpus, name)
        share, examples = tb.compare_tokens(docs, language)
        labels = ", ".join(sorted({e.label_ for doc in docs for e in doc.ents}))
        msg.good(
            f"{path}: {sum(map(len, docs)):,} tokens for {', '.join(wanted)}"
            f"{f' ({labels})' if labels else ''}; spaCy's tokenizer makes "
            f"{share:.1%} of them"
        )
        if share < MIN_AGREEMENT:
            some = ", ".join(examples)
            msg.warn(Warnings.W010.format(path=path, share=share, examples=some))
        components.update(wanted)
    return [name for name in tb.ANNOTATION if name in components], n_dev


def print_survey(survey: Survey, config: Config) -> None:
    """Print how much text there is, and how much of it the biLM can see."""
    longest = config["model"]["char_cnn"]["max_characters_per_token"]
    msg.good(
        f"Text: {survey.words:,} words to train on, {survey.heldout:,} held out; "
        f"{survey.repeated:,} repeated paragraphs left out"
    )
    share = survey.share_cut(longest)
    cut = f"Words cut: {share:.2%} by the limit of {longest} characters"
    if longest != REFERENCE_LENGTH:
        share = survey.share_cut(REFERENCE_LENGTH)
        cut += f", {share:.2%} by the reference's of {REFERENCE_LENGTH}"
    msg.good(cut)
    if survey.words < LITTLE_WORDS:
        msg.warn(Warnings.W011.format(found=survey.words))


def run_project(output: Path) -> None:
    """Run the steps of a project that are not done yet. On Ctrl+C, each time, the step
    that runs is interrupted, and waited for.
    """
    has_groups = hasattr(os, "killpg")  # not on Windows
    command = [sys.executable, "-m", "spacy_elmo.recipe.steps", str(output)]
    with subprocess.Popen(command, start_new_session=has_groups) as steps:
        while steps.returncode is None:
            try:
                steps.wait()
            except KeyboardInterrupt:  # the first may come between two steps
                if has_groups:
                    with suppress(ProcessLookupError):  # it has just ended
                        os.killpg(steps.pid, signal.SIGINT)
    if steps.returncode:
        msg.warn("Stopped. Run the same command again to resume.", exits=1)
    msg.good("Install what you have made:")
    wheels = sorted(map(str, (output / "packages").glob("*/dist/*.whl")))
    print(shlex.join(["pip", "install", *wheels]))
