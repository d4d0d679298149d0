"""The parts of a corpus on a Ray cluster: a task is a file of the corpus, and each
worker loads the pipeline once. The output folder must be one that all workers see.
"""

from itertools import count
from pathlib import Path
from typing import Any, Dict, List

from ..errors import CorpusError, Errors


class FileEmbedder:
    """A worker. Ray Data makes one in each of its processes."""

    def __init__(self, folder: str, settings: Dict[str, Any]):
        from .embed import make_job

        self.job, self.tokenized, _ = make_job(Path(folder), **settings)

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        from ..pipeline.vector_files import embed_file
        from .embed import read_texts

        counts = []
        for file, number in zip(batch["file"], batch["number"]):
            n_texts = count()
            texts = read_texts(Path(file), self.tokenized)
            counted = (text for text, _ in zip(texts, n_texts))
            embed_file(self.job, counted, int(number))
            counts.append(next(n_texts))
        return {**batch, "n_texts": counts}


def embed_files(
    files: List[Path], folder: Path, settings: Dict[str, Any], n_workers: int
) -> int:
    """Write the parts of all files that are not there yet.

    RETURNS (int): How many texts there are.
    RAISES (CorpusError): Without Ray Data.
    """
    try:
        # The module that is used: a folder "ray" can be imported as well.
        from ray.data import from_items  # type: ignore[import-not-found, unused-ignore]
    except ImportError as e:
        raise CorpusError(Errors.E113.format(reason=e)) from None
    items = [
        {"file": str(file.absolute()), "number": number}
        for number, file in enumerate(files)
    ]
    done = from_items(items, override_num_blocks=len(items)).map_batches(
        FileEmbedder,
        batch_size=1,
        concurrency=n_workers,
        fn_constructor_args=(str(folder.absolute()), _without_relative(settings)),
    )
    return int(sum(row["n_texts"] for row in done.take_all()))


def _without_relative(settings: Dict[str, Any]) -> Dict[str, Any]:
    """Workers are in directories of their own. Where a name goes before a path, it
    stays a name.
    """
    from spacy.util import is_package

    from ..weights import registered_names

    found = dict(settings)
    for key, is_name in (
        ("weights", lambda name: name in registered_names()),
        ("pipeline", is_package),
    ):
        given = found.get(key)
        if given is not None and not is_name(given) and Path(given).exists():
            found[key] = str(Path(given).absolute())
    return found
