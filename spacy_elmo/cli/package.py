import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import srsly
import typer
from spacy.cli._util import Arg, Opt, string_to_list
from thinc.api import Config
from wasabi import msg
from wasabi.markdown import MarkdownRenderer

from ..errors import CorpusError, Errors, WeightsError
from ._app import app, plain_errors

CONFIG = "config.cfg"
KINDS = ("wheel", "sdist", "none")
# What a log says of the whole run
RUN = ("tokens", "step", "epoch", "seconds")
PERPLEXITY = {
    "average": "Perplexity",
    "forward": "Perplexity, forward",
    "backward": "Perplexity, backward",
    "bits_per_character": "Bits per character",
}
INIT = '''"""The biLM {name}: weights = "{name}" in a config of spacy_elmo."""

from pathlib import Path


def weights() -> Path:
    return Path(__file__).parent
'''
PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
readme = "README.md"
dependencies = ["spacy-elmo>={requires}"]

[project.entry-points.spacy_elmo_weights]
{name} = "{name}:weights"

[tool.setuptools]
packages = ["{name}"]

[tool.setuptools.package-data]
{name} = ["*"]
"""


@app.command("package")
def package_cli(
    input_path: Path = Arg(
        ...,
        help="Directory of a biLM, as 'spacy elmo pretrain' writes it",
        exists=True,
        file_okay=False,
    ),
    output_path: Path = Arg(..., help="Output parent directory", file_okay=False),
    name: Optional[str] = Opt(None, "--name", "-n", help="Name of package and weights"),
    version: Optional[str] = Opt(None, "--version", "-v", help="Version"),
    license: Optional[str] = Opt(
        None, "--license", "-L", help="License; asked for if nothing says it"
    ),
    sources: Optional[str] = Opt(
        None, "--sources", "-s", help="What text it was trained on, for the model card"
    ),
    meta_path: Optional[Path] = Opt(
        None,
        "--meta-path",
        "-m",
        help="Path to meta.json; by default that of the directory, if there is one",
        exists=True,
        dir_okay=False,
    ),
    build: str = Opt(
        "wheel", "--build", "-b", help="Comma-separated: sdist, wheel, or none"
    ),
    force: bool = Opt(False, "--force", "-f", help="Overwrite an existing package"),
) -> None:
    """
    Make an installable Python package of a biLM, with a model card. Where it is
    installed, its name stands for the weights: weights = "hu_novels_elmo".
    """
    given = {
        "name": name, "version": version, "license": license,
        "sources": None if sources is None else [sources],
    }  # fmt: skip
    with plain_errors():
        folder = package(
            input_path,
            output_path,
            meta={key: value for key, value in given.items() if value is not None},
            meta_path=meta_path,
            build=build,
            force=force,
        )
    msg.good(f"Made the package {folder.name}", str(folder))


def package(
    input_path: Path,
    output_path: Path,
    *,
    meta: Optional[Dict[str, Any]] = None,
    meta_path: Optional[Path] = None,
    build: str = "wheel",
    force: bool = False,
) -> Path:
    """Make an installable package of a biLM.

    input_path (Path): Its directory.
    output_path (Path): Receives the directory NAME-VERSION.
    meta (Dict[str, Any]): What stands before meta.json.
    meta_path (Path): A meta.json; by default that in the directory.
    build (str): "sdist", "wheel", both with a comma, or "none".
    force (bool): Replace a package that is there.
    RETURNS (Path): The directory. What was built is in its folder `dist`.
    RAISES (WeightsError): If the biLM cannot be read.
    RAISES (CorpusError): If it has no license or no name for a package, or if it
        cannot be built.
    """
    from ..bilm.files import find_files
    from .info import info

    find_files(input_path)
    found = {**read_meta(input_path, meta_path), **(meta or {})}
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?", found["name"]):
        raise CorpusError(Errors.E139.format(name=found["name"]))
    if "license" not in found:
        if not sys.stdin.isatty():
            raise CorpusError(Errors.E137.format(path=input_path))
        found["license"] = typer.prompt("License of the package")
    folder = output_path / f"{found['name']}-{found['version']}"
    if folder.exists() and not force:
        raise CorpusError(Errors.E111.format(path=folder))
    kinds = string_to_list(build)
    check_kinds(kinds)
    making = output_path / f".{folder.name}"
    shutil.rmtree(making, ignore_errors=True)
    card = model_card({**info(input_path), **found})
    write_package(input_path, making, found, card)
    for kind in kinds:
        build_package(making, kind)
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)
    return folder


def read_meta(bilm: Path, meta_path: Optional[Path] = None) -> Dict[str, Any]:
    """What is known of a biLM: by its config and its log, and by a meta.json, which
    stands before them.
    """
    from ..pretraining.config import read_config
    from .plot import LOG, read_log

    meta: Dict[str, Any] = {"lang": "xx", "version": "0.0.0"}
    if (bilm / CONFIG).is_file():
        config = read_config(bilm / CONFIG)
        meta["lang"] = config.get("nlp", {}).get("lang", "xx")
    if (bilm / LOG).is_file():
        last = read_log(bilm / LOG)[-1]
        meta["training"] = {key: last[key] for key in RUN if key in last}
        meta["perplexity"] = {key: last[key] for key in PERPLEXITY if key in last}
    path = meta_path or bilm / "meta.json"
    if path.is_file():
        try:
            meta.update(dict(srsly.read_json(path)))
        except (ValueError, TypeError) as e:
            raise WeightsError(Errors.E006.format(path=path, reason=e)) from None
    return {"name": f"{meta['lang']}_elmo", **meta}


def write_package(bilm: Path, folder: Path, meta: Dict[str, Any], card: str) -> None:
    """Write the sources of a package: the model, its card, and what publishes it."""
    from ..about import __version__
    from ..bilm.files import find_files
    from ..pretraining.config import read_config

    name = meta["name"]
    module = folder / name
    module.mkdir(parents=True)
    files = find_files(bilm)
    (module / "options.json").write_bytes(files.options)
    shutil.copyfile(files.weights_name, module / "weights.hdf5")
    if (bilm / "vocab.txt").is_file():
        shutil.copyfile(bilm / "vocab.txt", module / "vocab.txt")
    if (bilm / CONFIG).is_file():
        # How text was tokenized; the rest has paths of this machine.
        config = read_config(bilm / CONFIG)
        Config(
            {key: config[key] for key in ("nlp", "corpus") if key in config}
        ).to_disk(module / CONFIG)
    srsly.write_json(module / "meta.json", meta)
    (module / "__init__.py").write_text(INIT.format(name=name), encoding="utf8")
    for readme in (folder / "README.md", module / "README.md"):
        readme.write_text(card, encoding="utf8")
    pyproject = PYPROJECT.format(
        name=name, version=meta["version"], requires=__version__
    )
    (folder / "pyproject.toml").write_text(pyproject, encoding="utf8")


def model_card(meta: Dict[str, Any]) -> str:
    """The model card, as Markdown.

    meta (Dict[str, Any]): What `read_meta` gives, and `info`.
    """
    lstm, char_cnn = meta["options"]["lstm"], meta["options"]["char_cnn"]
    layers = f"{meta['layers']} of width {meta['width']}, the token layer included"
    run, perplexity = meta.get("training", {}), meta.get("perplexity", {})
    rows = {
        "Language": meta["lang"],
        "Version": meta["version"],
        "License": meta["license"] or "not given",
        "Text": "; ".join(meta.get("sources", [])) or "not given",
        "Layers": layers,
        "LSTM": f"{lstm['n_layers']} x {lstm['dim']}/{lstm['projection_dim']}",
        "Longest word": f"{char_cnn['max_characters_per_token'] - 2} bytes of UTF-8",
        "Parameters": f"{meta['parameters']:,}",
    }
    if run:
        hours = f"{run['seconds'] / 3600:.1f}"
        rows["Training"] = f"{run['tokens']:,} tokens in {hours} hours"
    for key, value in perplexity.items():
        rows[PERPLEXITY[key]] = f"{value:.2f}"
    md = MarkdownRenderer()
    md.add(md.title(1, meta["name"]))
    md.add("A bidirectional language model (ELMo, Peters et al. 2018) for spacy_elmo.")
    md.add(
        md.table([(md.bold(key), str(value)) for key, value in rows.items()], ["", ""])
    )
    md.add("In a config:")
    md.add(md.code_block(f'weights = "{meta["name"]}"', "ini"))
    return f"{md.text}\n"


def check_kinds(kinds: List[str]) -> None:
    if not set(kinds) <= set(KINDS):
        wanted = " or ".join(map(repr, KINDS))
        found = ",".join(kinds)
        problem = Errors.E038.format(name="--build", wanted=wanted, found=found)
        raise CorpusError(problem)


def build_package(folder: Path, kind: str) -> None:
    """Build what pip installs, into the folder `dist`.

    kind (str): "wheel", "sdist" or "none".
    RAISES (CorpusError): If setuptools says why it cannot.
    """
    if kind == "none":
        return
    (folder / "dist").mkdir(exist_ok=True)
    code = f"from setuptools import build_meta as b; b.build_{kind}('dist')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        reason = done.stderr.strip().split("\n")[-1]
        raise CorpusError(Errors.E138.format(reason=reason, path=folder))
    for left in ("build", f"{folder.name}.egg-info"):
        shutil.rmtree(folder / left, ignore_errors=True)
