from typing import Optional

from spacy.cli._util import Arg, Opt
from wasabi import msg

from .. import registry
from ._app import app


@app.command("download")
def download_cli(
    name: Optional[str] = Arg(
        None, help="For instance allennlp/original; without a name, all are listed"
    ),
    force: bool = Opt(False, "--force", "-f", help="Download it again"),
    silent: bool = Opt(False, "--silent", "-S", help="No progress bar"),
) -> None:
    """
    Download a published biLM into the cache folder. That is SPACY_ELMO_CACHE, by
    default spacy_elmo in the user's cache folder; `weights = "allennlp/original"`
    finds the model there.
    """
    from ..weights.published import MODELS, cache_folder, cached_path, download

    if name in registry.weights:
        msg.good(f"{name} is installed: there is nothing to download")
        return
    if name is not None:
        path = download(name, force=force, silent=silent)
        msg.good(f"{name} is at {path}", f'In configs and scripts: weights = "{name}"')
        return
    rows = [
        (name, model.about, "yes" if cached_path(name, model).exists() else "")
        for name, model in MODELS.items()
    ]
    rows.append(("nlpl/ID", "ID: a number in vectors.nlpl.eu/repository/20.json", ""))
    msg.table(rows, header=("Name", "Model", "Here"), divider=True, max_col=60)
    msg.text(f"Cache folder: {cache_folder()}")
