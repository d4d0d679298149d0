"""HDF5 files of the layers of texts, written part by part: a run that was stopped
leaves the parts that it has written, and the next one makes the others.
"""

import json
import os
from collections import deque
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import h5py
import numpy as np
from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.training.batchers import minibatch_by_words

from ..bilm.official_format import round_to
from ..errors import CorpusError, Errors, require_same, unusable
from ..layers.architectures import Mix
from ..processes import map_in_processes
from ..storage import create_hdf5, remove_leftovers, replacing
from ..storage import sha256 as sha256_of
from ..text.documents import Text, make_doc, read_texts
from .component import ELMo
from .vector_hooks import Floats, Layer, select_layer

PART_TEXTS = 1000
# The layers of so many tokens are in memory at once, or those of one text.
BATCH_TOKENS = 16_384
JOB, MERGED = "job.json", "merged"
INDEX = "sentence_to_index"


class Job(NamedTuple):
    """What is written of each text, and where."""

    nlp: Language  # ends with its `elmo` component
    layer: Optional[Layer]  # None for all, (L + 1, n_tokens, width) as AllenNLP has it
    mix: Optional[Mix]  # mixes the layers instead
    dtype: str  # "float32" or "float16"
    tokenized: bool  # words of the texts stand between spaces
    folder: Path  # of the parts

    def read(self, file: Path) -> Iterator[Text]:
        lang = self.nlp.lang or ""
        return read_texts(file, tokenized=self.tokenized, lang=lang)

    def select(self, layers: Floats) -> Floats:
        """(n_tokens, L + 1, width) -> what is written."""
        if self.mix is not None:
            ops: Any = self.mix.ops
            return ops.to_numpy(self.mix.predict([ops.asarray3f(layers)])[0])
        if self.layer is None:
            return layers.transpose(1, 0, 2)
        return select_layer(layers, self.layer)

    def describe(self, elmo: ELMo, files: List[Path]) -> Dict[str, Any]:
        """What must match before a run may reuse the parts of another."""
        model = self.nlp.get_pipe_config(elmo.name)["model"]
        # Sorted: in a sentencizer's bytes, they have the order of a set, which is
        # another in each process.
        marks = {
            name: [sorted(pipe.punct_chars), pipe.overwrite]
            for name, pipe in self.nlp.pipeline
            if isinstance(pipe, Sentencizer)
        }
        exclude = ["vocab", "meta", "config", elmo.name, *marks]
        pipeline = self.nlp.to_bytes(exclude=exclude) + json.dumps(marks).encode()
        return {
            "files": [[file.name, sha256_of(file)] for file in files],
            "layers": self.layer,
            "dtype": self.dtype,
            "tokenized": self.tokenized,
            "lang": self.nlp.lang,
            "pipeline": sha256(pipeline).hexdigest(),
            "model": {**model, "weights": elmo.digest},
            "mix": _digest(self.mix) if self.mix else None,
        }


def _digest(mix: Mix) -> str:
    settings = repr(mix.attrs["settings"])  # which its bytes leave out
    return sha256(mix.to_bytes() + settings.encode()).hexdigest()


class Part(NamedTuple):
    """A file, and the texts whose layers it gets, with their numbers."""

    path: Path
    texts: Iterable[Tuple[int, Text]]


def open_folder(folder: Path, description: Dict[str, Any]) -> None:
    """Make the folder of the parts, or resume with those that are there. No other run
    may be writing to it.

    RAISES (CorpusError): If the parts there are of another job.
    """
    path = folder / JOB
    found = {}
    with suppress(OSError, ValueError, TypeError):  # not there, or not ours
        found = dict(json.loads(path.read_text(encoding="utf8")))
    if not path.exists() and any(folder.glob("*.hdf5")):
        raise unusable(folder, f"has .hdf5 files, but no {JOB}: give another folder")
    is_foreign = path.exists() and found.keys() != description.keys()
    if is_foreign or any(folder.glob("*.hdf5")):
        require_same(folder, found, description)
    for name in ("*.hdf5", MERGED, JOB):
        remove_leftovers(folder, name)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(description), encoding="utf8")


def missing_parts(job: Job, texts: Iterable[Tuple[int, Text]]) -> Iterator[Part]:
    """The parts that are not there yet of texts, which come with the number of their
    file.
    """
    for file, of_file in groupby(texts, key=lambda numbered: numbered[0]):
        numbered = enumerate(text for _, text in of_file)
        for number, some in groupby(numbered, key=lambda text: text[0] // PART_TEXTS):
            path = job.folder / f"{file:05}-{number:07}.hdf5"
            if not path.is_file():
                yield Part(path, some)


def write_parts(job: Job, parts: Iterable[Part], n_process: int = 1) -> None:
    """Write parts, each in one of n_process processes."""
    if n_process == 1:
        for part in parts:
            write_part(job, part)
    else:
        read = (Part(path, list(texts)) for path, texts in parts)
        deque(map_in_processes(write_part, job, read, n_process), maxlen=0)


def write_part(job: Job, part: Part) -> None:
    """Write the layers of the texts of a part."""
    nlp = job.nlp
    with nlp.memory_zone(), _writing(part.path) as h5:
        docs = ((make_doc(nlp, text), number) for number, text in part.texts)
        for some in minibatch_by_words(
            docs, BATCH_TOKENS, get_length=lambda numbered: len(numbered[0])
        ):
            for doc, number in nlp.pipe(some, as_tuples=True):
                words = [token.text for token in doc]
                layers = job.select(doc._.elmo)
                h5[str(number)] = round_to(job.dtype, layers, f"text {number}")
                h5[str(number)].attrs["words"] = json.dumps(words, ensure_ascii=False)


def merge(folder: Path, output: Path) -> None:
    """Make one file of all parts, and delete them. The texts of all files are numbered
    consecutively.
    """
    parts = sorted(
        folder.glob("*.hdf5"), key=lambda path: list(map(int, path.stem.split("-")))
    )
    merged = folder / MERGED
    with _writing(merged) as out:
        for path in parts:
            try:
                part = h5py.File(path, "r")
            except OSError as e:
                problem = f"cannot be read ({e}). Remove it to have it made again"
                raise unusable(path, problem) from None
            with part:
                for number in sorted(int(name) for name in part if name != INDEX):
                    part.copy(str(number), out, name=str(len(out)))
    os.replace(merged, output)
    for path in (*parts, folder / JOB):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # someone else's file is in it
        folder.rmdir()


@contextmanager
def _writing(path: Path) -> Iterator[h5py.File]:
    """A file as AllenNLP's `elmo` command writes it: a dataset for each text, named by
    its number, and `sentence_to_index`, which has the numbers by the words.
    """
    try:
        with replacing(path) as temporary, create_hdf5(temporary) as h5:
            yield h5
            names = sorted(h5, key=int)
            index = {" ".join(json.loads(h5[n].attrs["words"])): n for n in names}
            h5[INDEX] = np.array([json.dumps(index, ensure_ascii=False)], dtype=object)
    except OSError as e:
        error = Errors.E115.format(path=path, reason=e.strerror or e)
        raise CorpusError(error) from None
