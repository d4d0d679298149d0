"""The parts of a corpus on a Ray cluster: a task is a file of the corpus, and each
worker loads the pipeline once. The output folder must be one that all workers see.
"""

from pathlib import Path
from typing import Any, Dict, List

from ..errors import CorpusError, Errors


class FileEmbedder:
    """A worker. Ray Data makes one in each of its processes."""

    def __init__(self, folder: str, settings: Dict[str, Any]):
        from .embed import make_job

        self.job, self.tokenized, _ = make_job(Path(folder), **settings)

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        from ..pipeline.embedding import embed_file
        from .embed import read_texts

        new = [
            embed_file(self.job, read_texts(Path(file), self.tokenized), int(number))
            for file, number in zip(batch["file"], batch["number"])
        ]
        return {**batch, "new": new}


def embed_files(
    files: List[Path], folder: Path, settings: Dict[str, Any], n_workers: int
) -> int:
    """Write the parts of all files that are not there yet.

    RETURNS (int): Texts that are new.
    RAISES (CorpusError): Without Ray.
    """
    try:
        import ray  # type: ignore[import-not-found, unused-ignore]
    except ImportError as e:
        raise CorpusError(Errors.E113.format(reason=e)) from None
    items = [
        {"file": str(file.absolute()), "number": number}
        for number, file in enumerate(files)
    ]
    done = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        FileEmbedder,
        batch_size=1,
        concurrency=n_workers,
        fn_constructor_args=(str(folder.absolute()), settings),
    )
    return int(sum(row["new"] for row in done.take_all()))
