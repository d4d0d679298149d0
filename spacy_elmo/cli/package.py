import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

import srsly
import typer
from spacy.cli._util import Arg, Opt, string_to_list
from wasabi import msg
from wasabi.markdown import MarkdownRenderer

from ..errors import CorpusError, Errors, require
from ..storage import hold
from ._app import app
from .inputs import (
    FILE,
    is_package_name,
    read_meta,
    read_sections,
    require_version,
    write_tokenizer,
)
from .outputs import describe

if TYPE_CHECKING:
    from ..bilm import BiLM

INIT = """from pathlib import Path


def weights() -> Path:  # weights = "{name}" in a config of spacy_elmo
    return Path(__file__).parent
"""
PYPROJECT_FILE = "pyproject.toml"
PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
readme = "README.md"
license = {{text = {license}}}
dependencies = ["spacy-elmo>={requires}"]

[project.entry-points.spacy_elmo_weights]
{name} = "{name}:weights"

[tool.setuptools]
packages = ["{name}"]

[tool.setuptools.package-data]
{name} = ["*"]
"""

# What the card shows of the last record of a log
TRAINING = {
    "tokens": "Tokens read",
    "seconds": "Seconds of training",
    "average": "Perplexity",
    "bits_per_character": "Bits per character",
}

# What the card takes from a meta.json
META: Dict[str, Tuple[Any, str]] = {
    "lang": (str, "a string"),
    "license": (str, "a string"),
    "sources": ((str, list), "a string or a list"),
    "training": (dict, "an object"),
}


@app.command("package")
def package_cli(
    input_path: Path = Arg(
        ..., help="Directory that 'pretrain' has written", exists=True, file_okay=False
    ),
    output_path: Path = Arg(..., help="Output parent directory", file_okay=False),
    name: Optional[str] = Opt(None, "--name", "-n", help="Name of package and weights"),
    version: Optional[str] = Opt(
        None, "--version", "-v", help="Default: that in meta.json, or 0.0.0"
    ),
    license: Optional[str] = Opt(
        None, "--license", "-L", help="License; asked for if it is not known"
    ),
    sources: Optional[str] = Opt(
        None, "--sources", "-s", help="The text it was trained on, for the model card"
    ),
    meta_path: Optional[Path] = Opt(
        None, "--meta-path", "-m", help="Default: meta.json of the directory", **FILE
    ),
    build: str = Opt(
        "wheel", "--build", "-b", help="Comma-separated: sdist, wheel, or none"
    ),
    force: bool = Opt(False, "--force", "-f", help="Overwrite an existing package"),
) -> None:
    """
    Make an installable package of a biLM, with a model card. Once installed, it is
    found by its name: weights = "hu_novels_elmo".
    """
    from spacy.cli.package import get_build_formats

    from ..bilm import BiLM

    formats = get_build_formats(string_to_list(build))
    given = {"name": name, "version": version, "license": license}
    meta = make_meta(input_path, meta_path or input_path / "meta.json")
    meta.update({key: value for key, value in given.items() if value is not None})
    if sources is not None:
        meta["sources"] = [sources]
    if not is_package_name(meta["name"]):
        raise CorpusError(Errors.E139.format(name=meta["name"]))
    require_version(meta["version"])
    folder = output_path / f"{meta['name']}-{meta['version']}"
    if folder.exists() and not force:
        raise CorpusError(Errors.E133.format(path=folder))
    if folder.exists() and not (folder / PYPROJECT_FILE).is_file():
        raise CorpusError(Errors.E111.format(path=folder))  # no package to replace
    bilm = BiLM.from_path(input_path)
    if meta.get("license") is None:
        if not (sys.stdin and sys.stdin.isatty()):
            raise CorpusError(Errors.E137.format(path=input_path))
        meta["license"] = typer.prompt("License of the package")
    # In a folder of its own: the input may be inside the package that is replaced.
    making = output_path / f".{folder.name}"
    busy = CorpusError(Errors.E114.format(path=folder))
    with hold(output_path / f"{making.name}.lock", busy):
        shutil.rmtree(making, ignore_errors=True)
        write_package(input_path, making, meta, model_card(meta, bilm))
        for kind, wanted in zip(("sdist", "wheel"), formats):
            if wanted:
                build_package(making, kind)
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    msg.good(f"Made the package {folder.name}", str(folder))


def make_meta(bilm: Path, meta_path: Path) -> Dict[str, Any]:
    """The meta.json of a biLM, completed from its config and its log."""
    from ..pretraining.loggers import LOG, read_log

    found = read_sections(bilm)
    lang = found.nlp.get("lang") if found else None
    meta: Dict[str, Any] = {"lang": lang or "xx", "version": "0.0.0"}
    if (bilm / LOG).is_file():
        last = read_log(bilm)[-1]
        # JSON has no infinite perplexities.
        kept = [key for key in TRAINING if math.isfinite(last.get(key, math.inf))]
        meta["training"] = {key: last[key] for key in kept}
    given = read_meta(meta_path)
    meta.update({key: value for key, value in given.items() if value is not None})
    for key, (kinds, wanted) in META.items():
        found = meta.get(key)
        is_good = found is None or isinstance(found, kinds)
        require(is_good, f"{meta_path}: {key}", wanted, found)
    figures = {k: v for k, v in meta.get("training", {}).items() if v is not None}
    for key in TRAINING:
        is_good = isinstance(figures.get(key, 0), (int, float))
        name = f"{meta_path}: training.{key}"
        require(is_good, name, "a number", figures.get(key))
    if "training" in meta:
        meta["training"] = figures
    return {"name": f"{meta['lang']}_elmo", **meta}


def write_package(bilm: Path, folder: Path, meta: Dict[str, Any], card: str) -> None:
    """Write the sources of a package: model, card, and the entry point."""
    from ..about import __version__
    from ..bilm.paths import OPTIONS_FILE, WEIGHTS_FILE, find_files
    from ..pretraining.vocabulary import VOCABULARY

    module = folder / meta["name"]
    module.mkdir(parents=True)
    files = find_files(bilm)
    (module / OPTIONS_FILE).write_bytes(files.options)
    shutil.copyfile(files.weights_name, module / WEIGHTS_FILE)
    if (bilm / VOCABULARY).is_file():
        shutil.copyfile(bilm / VOCABULARY, module / VOCABULARY)
    write_tokenizer(bilm, module)
    srsly.write_json(module / "meta.json", meta)
    fields = {"name": meta["name"], "version": meta["version"], "requires": __version__}
    # TOML quotes as JSON does, but has no surrogates
    fields["license"] = json.dumps(meta["license"], ensure_ascii=False)
    (module / "__init__.py").write_text(INIT.format(**fields), encoding="utf8")
    (folder / PYPROJECT_FILE).write_text(PYPROJECT.format(**fields), encoding="utf8")
    (folder / "README.md").write_text(card, encoding="utf8")


def model_card(meta: Dict[str, Any], bilm: "BiLM") -> str:
    """The model card in Markdown, from what `make_meta` returns."""
    sources = meta.get("sources", [])
    sources = [sources] if isinstance(sources, str) else sources
    # In spaCy's meta.json they are objects.
    names = [str(x.get("name") if isinstance(x, dict) else x) for x in sources]
    rows = {
        "Language": meta["lang"],
        "Text": "; ".join(names) or "not given",
        **describe(bilm, meta),
    }
    for key, name in TRAINING.items():
        if key in meta.get("training", {}):
            rows[name] = f"{round(meta['training'][key], 2):,}"
    md = MarkdownRenderer()
    md.add(md.title(1, meta["name"]))
    md.add("A bidirectional language model (ELMo, Peters et al. 2018) for spacy_elmo.")
    md.add(md.table([(md.bold(key), value) for key, value in rows.items()], ["", ""]))
    md.add("In a config:")
    md.add(md.code_block(f'weights = "{meta["name"]}"', "ini"))
    return f"{md.text}\n"


def build_package(folder: Path, kind: str) -> None:
    """Build a wheel or an sdist into the folder `dist`.

    RAISES (CorpusError): If setuptools fails.
    """
    (folder / "dist").mkdir(exist_ok=True)
    code = f"from setuptools import build_meta as b; b.build_{kind}('dist')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        reason = done.stderr.strip().split("\n")[-1]
        raise CorpusError(Errors.E138.format(reason=reason, path=folder))
    for left in (folder / "build", *folder.glob("*.egg-info")):
        shutil.rmtree(left, ignore_errors=True)
