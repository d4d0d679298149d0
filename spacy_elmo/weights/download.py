import shutil
import time
from pathlib import Path
from typing import Dict, List, Optional

import requests
import srsly
from tqdm import tqdm
from wasabi import msg

from ..errors import DownloadError, Errors, WeightsError
from ..storage import hold, sha256
from .addresses import MODELS, File, Published, find_published
from .cache import cached_path
from .record import find_change, write_record

# Of a part that breaks off, what does not fill this is lost.
CHUNK_BYTES = 1 << 14
# Seconds until a server that says nothing is given up.
TIMEOUT = 30
# How often an interrupted transfer goes on by itself, and the first pause.
TRIES = 4
PAUSE = 1.0


def download(name: str, *, force: bool = False, silent: bool = False) -> Path:
    """Fetch a published model into the cache folder, where `weights = name` finds it
    from then on. An interrupted download goes on where it stopped, now or when it is
    asked for again; one that another process is at is waited for. A model that is
    there is compared with what came.

    name (str): See `addresses`.
    force (bool): Fetch it again though it is there.
    silent (bool): No progress bar.
    RETURNS (Path): Where it is: a folder or a .zip.
    RAISES (DownloadError): If there is no such model, if it cannot be fetched, or if
        what is there has changed since.
    RAISES (WeightsError): If what came is no model.
    """
    model = find_published(name)
    if model is None:
        names = ", ".join(MODELS)
        raise DownloadError(Errors.E100.format(name=name, names=names))
    target = cached_path(name, model)
    if target.exists() and not force:
        problem = find_change(target)
        if problem is not None:
            error = Errors.E106.format(path=target, problem=problem, name=name)
            raise DownloadError(error)
        return target
    making = target.with_name(f".{target.name}.download")

    def busy() -> None:
        if not silent:
            msg.info(f"Another process is downloading {name}: waiting for it.")

    try:
        with hold(target.with_name(f".{target.name}.lock"), busy):
            # It may have come while this one waited.
            if force or not target.exists():
                _make(model, making, target, silent)
    except WeightsError:
        raise  # some are OSErrors
    except OSError as e:
        raise DownloadError(Errors.E105.format(path=making, reason=e)) from None
    return target


def _make(model: Published, making: Path, target: Path, silent: bool) -> None:
    making.mkdir(parents=True, exist_ok=True)
    for file in model.files:
        fetch(model.hosts, file, making, silent=silent)
    _check(making, target)
    _move(model, making, target)


def fetch(hosts: List[str], file: File, folder: Path, *, silent: bool = False) -> Path:
    """Fetch one file, from the first host that has it.

    RETURNS (Path): The file in the folder.
    RAISES (DownloadError): If no host gives it, or if it is not what it should be.
    """
    target = folder / Path(file.path).name
    if target.exists():
        return target
    problems: Dict[str, str] = {}
    for host in hosts:
        url = f"{host}/{file.path}"
        problem = _try_to_fetch(url, target, silent)
        if problem is None:
            _check_digest(target, file, url)
            return target
        problems[url] = problem
    found = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
    raise DownloadError(Errors.E101.format(problems=found))


def _try_to_fetch(url: str, target: Path, silent: bool) -> Optional[str]:
    """Fetch a file, going on after interruptions.

    RETURNS (Optional[str]): What went wrong, or None.
    """
    part = target.with_name(target.name + ".part")
    problem = "no answer"
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            with requests.get(
                url, stream=True, timeout=TIMEOUT, headers=_range_of(part)
            ) as response:
                if response.status_code == 416:  # what is here is not what is there
                    _forget(part)
                    problem = "the file there has changed"
                    continue
                if response.status_code not in (200, 206):
                    return f"HTTP {response.status_code}"
                problem = _receive(response, part, silent)
        except requests.exceptions.RequestException as e:
            problem = f"{_short(e)}, after {_size(part):,} bytes"
            continue
        if not problem:
            part.replace(target)
            _stamp_of(part).unlink(missing_ok=True)
            return None
    return problem


def _receive(response: requests.Response, part: Path, silent: bool) -> str:
    """Write what comes behind what is there, if the server goes on from there.

    RETURNS (str): What is missing at the end, or "".
    """
    stamp = response.headers.get("ETag") or response.headers.get("Last-Modified")
    start = part.stat().st_size if response.status_code == 206 else 0
    srsly.write_json(_stamp_of(part), {"stamp": stamp})
    length = response.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    name = part.name[: -len(".part")]
    with (
        part.open("ab" if start else "wb") as out,
        tqdm(
            total=total, initial=start, unit="B", unit_scale=True, unit_divisor=1024,
            desc=name, disable=silent,
        ) as bar,
    ):  # fmt: skip
        for chunk in response.iter_content(CHUNK_BYTES):
            out.write(chunk)
            bar.update(len(chunk))
    found = part.stat().st_size
    if total is not None and found < total:
        return f"the connection broke after {found:,} of {total:,} bytes"
    if total is not None and found > total:
        _forget(part)
        return f"{found:,} bytes came, but {total:,} were announced"
    return ""


def _range_of(part: Path) -> Dict[str, str]:
    """Asks for the rest of a file, provided that it is still the same one."""
    # Lengths must be those of the file: no compression on the way.
    headers = {"Accept-Encoding": "identity"}
    if part.is_file() and part.stat().st_size and _stamp_of(part).is_file():
        stamp = srsly.read_json(_stamp_of(part)).get("stamp")
        if stamp is not None:
            headers["Range"] = f"bytes={part.stat().st_size}-"
            headers["If-Range"] = stamp
    return headers


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _stamp_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _stamp_of(part).unlink(missing_ok=True)


def _check_digest(target: Path, file: File, url: str) -> None:
    if file.sha256 is None:
        return
    found = sha256(target)
    if found != file.sha256:
        target.unlink()
        raise DownloadError(
            Errors.E102.format(url=url, found=found, wanted=file.sha256)
        )


def _check(making: Path, target: Path) -> None:
    """Whether it can be loaded; what cannot is thrown away and not kept for ever."""
    from ..bilm import BiLM

    path = making / target.name if target.suffix == ".zip" else making
    if target.suffix == ".zip":
        next(making.glob("*.zip")).replace(path)
    try:
        BiLM.from_path(path)
    except Exception:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _move(model: Published, making: Path, target: Path) -> None:
    """Put it where it is found, with its digests."""
    if target.suffix == ".zip":
        write_record(target, {target.name: sha256(making / target.name)})
        (making / target.name).replace(target)
        shutil.rmtree(making)
        return
    names = [Path(file.path).name for file in model.files]
    write_record(making, {name: sha256(making / name) for name in names})
    if target.exists():
        shutil.rmtree(target)
    making.rename(target)


def _short(error: Exception) -> str:
    """The innermost reason: requests nests three libraries' messages."""
    reason = getattr(error.args[0] if error.args else error, "reason", error)
    return str(reason).rsplit(": ", 1)[-1] or type(error).__name__
