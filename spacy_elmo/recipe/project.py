"""A spaCy project that goes from text to packages."""

from pathlib import Path
from typing import Any, Dict, List

import srsly
from thinc.api import Config

from ..storage import replacing
from ..text.files import PROJECT
from .configs import pipeline_config, without_elmo

META = "meta.json"


def write_project(
    folder: Path,
    config: Config,
    components: List[str],
    variables: Dict[str, Any],
    n_dev: int,
) -> None:
    """Write all of a project but its corpus.

    config (Config): Of pretraining.
    components (List[str]): Of the pipeline; none without a treebank.
    variables (Dict[str, Any]): "vars" of project.yml.
    n_dev (int): The number of tokens that an evaluation of the pipeline reads.
    """
    configs = folder / "configs"
    configs.mkdir()
    write_meta(folder, variables)
    config.to_disk(configs / "pretrain.cfg")
    steps = ["pretrain", "package-bilm"]
    if components:
        steps += ["baseline", "elmo", "compare", "package"]
        pipeline = pipeline_config(config["nlp"], components, variables["hours"], n_dev)
        pipeline.to_disk(configs / "elmo.cfg")
        without_elmo(pipeline).to_disk(configs / "baseline.cfg")
    project: Any = srsly.read_yaml(Path(__file__).parent / PROJECT)
    commands = [c for c in project["commands"] if c["name"] in steps]
    project.update(vars=variables, workflows={"all": steps}, commands=commands)
    srsly.write_yaml(folder / PROJECT, project)


def write_meta(folder: Path, variables: Dict[str, Any]) -> None:
    """Write what the packages say of themselves. If it changes, they are made anew."""
    meta = {key: variables[key] for key in ("lang", "name", "version", "license")}
    meta["sources"] = [variables["sources"]] if variables["sources"] else []
    srsly.write_json(folder / "configs" / META, meta)


def change_meta(folder: Path, changed: Dict[str, str]) -> None:
    """Change variables of a project that only its packages depend on."""
    project: Any = srsly.read_yaml(folder / PROJECT)
    project["vars"].update(changed)
    write_meta(folder, project["vars"])
    with replacing(folder / PROJECT) as path:
        srsly.write_yaml(path, project)
