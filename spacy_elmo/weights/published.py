"""Published models (published.json), and the cache folder that they come to."""

import os
import re
import shutil
from pathlib import Path
from typing import List, NamedTuple, Optional

import srsly

from ..errors import (
    DownloadError,
    Errors,
    MissingWeights,
    WeightsError,
    did_you_mean,
)
from ..storage import hold, temporary_folder

NLPL = "http://vectors.nlpl.eu/repository/20"
CACHE_VARIABLE = "SPACY_ELMO_CACHE"
TIMEOUT = 30  # seconds without an answer
CHUNK_BYTES = 1 << 16
# Five times the largest model known. A server that never stops must not fill the disk.
MAX_BYTES = 4 << 30


class Published(NamedTuple):
    """A model that can be downloaded: options and weights, or one archive."""

    about: str
    urls: List[str]


MODELS = {
    name: Published(**model)
    for name, model in srsly.read_json(Path(__file__).with_suffix(".json")).items()
}


def find_published(name: str) -> Optional[Published]:
    """The model of that name. Those of the NLPL repository are "nlpl/" and their
    number in its catalog (http://vectors.nlpl.eu/repository/20.json).
    """
    host, _, number = name.partition("/")
    if host == "nlpl" and re.fullmatch("[0-9]{1,9}", number):
        return Published("NLPL", [f"{NLPL}/{int(number)}.zip"])
    return MODELS.get(name)


def cache_folder() -> Path:
    """$SPACY_ELMO_CACHE, or `spacy_elmo` in the user's folder for caches.

    RAISES (MissingWeights): If the user has no home.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = os.environ.get(CACHE_VARIABLE) or Path(base) / "spacy_elmo"
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        error = Errors.E104.format(path=folder, variable=CACHE_VARIABLE)
        raise MissingWeights(error) from None


def cached_path(name: str, model: Published) -> Path:
    """Where a downloaded model is: its folder, or the archive in it."""
    folder = cache_folder() / name
    return folder / Path(model.urls[0]).name if len(model.urls) == 1 else folder


def download(name: str, *, force: bool = False, silent: bool = False) -> Path:
    """Download a published model into the cache folder, where `weights = name` finds
    it.

    force (bool): Download it again though it is there.
    RETURNS (Path): Where it is: a folder or a .zip.
    RAISES (DownloadError): If there is no such model, or if it cannot be fetched or
        written.
    RAISES (WeightsError): If what came is no model.
    """
    model = find_published(name)
    if model is None:
        known = {"hint": did_you_mean(name, MODELS), "names": ", ".join(MODELS)}
        raise DownloadError(Errors.E100.format(name=name, **known))
    target = cached_path(name, model)
    folder = cache_folder() / name
    if target.exists() and not force:  # also where nothing can be written
        return target
    try:
        # Two processes that ask for the same model download it once.
        with hold(folder.with_name(f".{folder.name}.lock")):
            if force or not target.exists():
                _download(model, folder, silent)
        return target
    except WeightsError:
        raise  # MissingWeights is an OSError too
    except OSError as e:
        where = f"{folder} (see {CACHE_VARIABLE})"
        raise DownloadError(Errors.E115.format(path=where, reason=e)) from None


def _download(model: Published, folder: Path, silent: bool) -> None:
    from ..bilm import BiLM

    with temporary_folder(folder.parent, f".{folder.name}.") as temporary:
        making = temporary / folder.name
        making.mkdir()
        files = [making / Path(url).name for url in model.urls]
        for url, file in zip(model.urls, files):
            _fetch(url, file, silent)
        try:
            # What cannot be loaded is not kept.
            BiLM.from_path(making if len(files) > 1 else files[0])
        except WeightsError as e:
            problem = str(e)
            for url, file in zip(model.urls, files):
                problem = problem.replace(str(file), url)
            raise WeightsError(problem) from None
        if folder.exists():
            shutil.rmtree(folder)
        making.rename(folder)


def _fetch(url: str, target: Path, silent: bool) -> None:
    import requests
    from tqdm import tqdm

    def failed(problem: object) -> DownloadError:
        return DownloadError(Errors.E101.format(url=url, problem=problem))

    # Unpacked on the way, a file would have another length than announced.
    headers = {"Accept-Encoding": "identity"}
    try:
        with requests.get(url, stream=True, timeout=TIMEOUT, headers=headers) as body:
            if body.status_code != 200:
                raise failed(f"HTTP {body.status_code}")
            size = body.raw.length_remaining
            look = {"desc": target.name, "unit": "B", "unit_scale": True}
            bar = tqdm(total=size, disable=silent, **look)
            with target.open("wb") as out, bar:
                for chunk in body.iter_content(CHUNK_BYTES):
                    out.write(chunk)
                    bar.update(len(chunk))
                    if out.tell() > MAX_BYTES:
                        raise failed(f"more than {MAX_BYTES:,} bytes")
    # requests has ValueError for a redirect to an invalid address.
    except (requests.exceptions.RequestException, ValueError) as e:
        raise failed(f"{str(e).rstrip('.')}. Try again") from None
