"""Texts -> HDF5 files of their layers, part by part: whatever stops a run, the parts
that are written stay, and the next run does the others.
"""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import h5py
import numpy as np
import numpy.typing as npt
from spacy.language import Language
from spacy.tokens import Doc

from ..bilm.hdf5 import create_hdf5
from ..errors import CorpusError, Errors
from ..storage import replacing
from .vector_hooks import Layer, select_layer

Floats = npt.NDArray[np.float32]
# From the layers of a text, (n_tokens, L + 1, width), to what is written.
Choose = Callable[[Floats], Floats]

# Texts of a part.
PART_TEXTS = 1000
INDEX = "sentence_to_index"
RECIPE = "recipe.json"


class Job(NamedTuple):
    """What is written, and where.

    nlp (Language): A pipeline, up to its `elmo` component.
    choose (Choose): Which layers, in which layout.
    dtype (str): "float32" or "float16".
    folder (Path): Receives the parts.
    """

    nlp: Language
    choose: Choose
    dtype: str
    folder: Path


def open_folder(folder: Path, recipe: Dict[str, Any]) -> None:
    """Make the folder of the parts, or see whether one is there that goes on. No other
    run may be writing there.

    folder (Path): The folder.
    recipe (Dict[str, Any]): What its parts must share.
    RAISES (CorpusError): If the parts there were made otherwise.
    """
    path = folder / RECIPE
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".*.hdf5.*"):  # of a run that was killed
        leftover.unlink()
    if not path.is_file():
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(recipe), encoding="utf8")
        return
    found = json.loads(path.read_text(encoding="utf8"))
    different = ", ".join(key for key in recipe if found.get(key) != recipe[key])
    if different:
        raise CorpusError(Errors.E110.format(path=folder, what=different))


def embed_file(job: Job, texts: Iterable[Any], number: int, n_process: int = 1) -> None:
    """Write the parts of a file that are not there yet.

    texts (Iterable[str or List[str] or Doc]): The texts of the file.
    number (int): Of the file: its parts are named by it.
    n_process (int): Processes that run the pipeline.
    """
    parts = (
        (path, start, part)
        for start, part in _cut(texts)
        if not (path := _part_path(job.folder, number, start)).is_file()
    )
    for path, start, docs in _run_parts(job.nlp, parts, n_process):
        write_part(job, path, start, docs)


def write_part(job: Job, path: Path, start: int, docs: List[Doc]) -> None:
    """Write the layers of texts as AllenNLP's `elmo` command does: a dataset each,
    named by the number of the text, and `sentence_to_index`, which has the number of
    each text by its words.
    """
    index = {}
    with _writing(path) as h5:
        for number, doc in enumerate(docs, start):
            words = [token.text for token in doc]
            h5[str(number)] = job.choose(doc._.elmo).astype(job.dtype)
            h5[str(number)].attrs["words"] = json.dumps(words, ensure_ascii=False)
            index[" ".join(words)] = str(number)
        _write_index(h5, index)


def merge(folder: Path, output: Path) -> None:
    """Make one file of all parts; the texts of all files are numbered through."""
    merged = folder / "merged"
    index: Dict[str, str] = {}
    with _writing(merged) as out:
        for path in sorted(folder.glob("*.hdf5")):
            with h5py.File(path, "r") as part:
                for number in sorted(int(name) for name in part if name != INDEX):
                    name = str(len(out))
                    part.copy(str(number), out, name=name)
                    index[" ".join(json.loads(out[name].attrs["words"]))] = name
        _write_index(out, index)
    os.replace(merged, output)
    shutil.rmtree(folder)


def make_choice(layers: str, mix: Any = None) -> Choose:
    """The layers that are written.

    layers (str): "all", (L + 1, n_tokens, width) as AllenNLP has it; "top", "mean" or
        the number of a layer, (n_tokens, width); or "mix".
    mix (Model[List[Floats3d], List[Floats2d]]): What "mix" is by.
    """
    if layers == "all":
        return lambda X: X.transpose(1, 0, 2)
    if layers != "mix":
        layer: Layer = int(layers) if layers.isdecimal() else layers
        return lambda X: select_layer(X, layer)
    return lambda X: np.asarray(mix.ops.to_numpy(mix.predict([mix.ops.asarray(X)])[0]))


@contextmanager
def _writing(path: Path) -> Iterator[Any]:
    try:
        with replacing(path) as temporary, create_hdf5(temporary) as h5:
            yield h5
    except OSError as e:
        error = Errors.E115.format(path=path, reason=e.strerror or e)
        raise CorpusError(error) from None


def _write_index(h5: Any, index: Dict[str, str]) -> None:
    h5[INDEX] = np.array([json.dumps(index, ensure_ascii=False)], dtype=object)


def _part_path(folder: Path, number: int, start: int) -> Path:
    return folder / f"{number:05}-{start // PART_TEXTS:07}.hdf5"


def _cut(texts: Iterable[Any]) -> Iterator[Tuple[int, List[Any]]]:
    """Parts of a file: the number of the first text of each, and its texts."""
    part: List[Any] = []
    start = 0
    for text in texts:
        part.append(text)
        if len(part) == PART_TEXTS:
            yield start, part
            part, start = [], start + PART_TEXTS
    if part:
        yield start, part


def _run_parts(
    nlp: Language, parts: Iterator[Tuple[Path, int, List[Any]]], n_process: int
) -> Iterator[Tuple[Path, int, List[Doc]]]:
    if n_process == 1:
        for path, start, texts in parts:
            with nlp.memory_zone():
                docs = [_make_doc(nlp, text) for text in texts]
                yield path, start, list(nlp.pipe(docs))
        return
    # The processes start once for all parts, and give the texts back in order.
    stream = (
        (_make_doc(nlp, text), (path, start, len(texts)))
        for path, start, texts in parts
        for text in texts
    )
    done: List[Doc] = []
    for doc, (path, start, size) in nlp.pipe(
        stream, as_tuples=True, n_process=n_process
    ):
        done.append(doc)
        if len(done) == size:
            yield path, start, done
            done = []


def _make_doc(nlp: Language, text: Any) -> Doc:
    if isinstance(text, str):
        return nlp.make_doc(text)
    return Doc(nlp.vocab, words=text) if isinstance(text, list) else text
