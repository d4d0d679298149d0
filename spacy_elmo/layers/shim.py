import contextlib
import copy
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt
import srsly
import torch
from spacy.util import make_tempdir
from thinc.api import torch2xp, xp2torch
from thinc.shims.shim import Shim

from ..bilm import BiLM
from ..bilm.batching import make_batches
from ..bilm.characters import number_words
from ..bilm.precision import check_precision, choose_precision
from ..weights import resolve
from .caches import SentenceCache, WordCache
from .device import choose_device
from .lock import LOCK
from .saved_weights import SavedWeights

Floats3d = npt.NDArray[np.float32]
Sentences = Sequence[List[str]]
Backprop = Callable[[List[Floats3d]], None]

# The files of a component's folder. The last has the license of the weights.
OPTIONS, WEIGHTS, META = "options.json", "weights.hdf5", "meta.json"


class BiLMShim(Shim):
    """Holds the biLM and its caches for Thinc. Nothing is opened before the first use.
    Frozen, the biLM never changes, and copies share it. Safe under threads.

    source (str): Name or path of the weights.
    precision (str): One of spacy_elmo.bilm.precision.PRECISIONS.
    device (str): Where the biLM runs; None for where Thinc does.
    max_batch_tokens (int): Tokens that run through the LSTMs at a time.
    words (WordCache): Token vectors of words seen before.
    sentences (SentenceCache): The layers of sentences, in training.
    """

    def __init__(
        self,
        source: str,
        *,
        precision: str,
        device: Optional[str],
        max_batch_tokens: int,
        words: WordCache,
        sentences: SentenceCache,
    ):
        check_precision(precision)
        super().__init__(None)
        self.source = source
        self.precision = precision
        self.device = device
        self.max_batch_tokens = max_batch_tokens
        self.words = words
        self.sentences = sentences
        self.trainable = False
        # What stands in the META beside the weights, which travels with them.
        self.meta: Optional[str] = None
        # The file that holds these very weights, if there is one.
        self._file: Optional[SavedWeights] = None

    @property
    def bilm(self) -> BiLM:
        """The biLM, read now if it was not yet."""
        with LOCK:
            if self._model is None:
                path = resolve(self.source)
                self._set(BiLM.from_path(path))
                self.meta = _read_meta(path)
            bilm: BiLM = self._model
            return bilm

    def make_trainable(self) -> None:
        self.trainable = True
        self.precision = "float32"
        # A word's vector changes with each update.
        self.words = WordCache(0)
        self.sentences = SentenceCache(0)

    def open_sentences(self) -> None:
        """From now on, in training, keep the layers of sentences."""
        with LOCK:
            if not self.trainable:
                self.sentences.open(self.bilm, self.precision)

    def encode(self, sentences: Sentences) -> List[Floats3d]:
        """The layers of each sentence, (n_words, L + 1, width)."""
        with LOCK:
            found = self.sentences.get(sentences)
        new = [i for i, layers in enumerate(found) if layers is None]
        words, ids = number_words([sentences[i] for i in new])
        with LOCK:
            table = self.words.lookup(self.bilm, words)
        encoded = self.bilm.encode_ids(
            table, ids, max_batch_tokens=self.max_batch_tokens
        )
        with LOCK:
            self.sentences.put([sentences[i] for i in new], encoded)
        computed = iter(encoded)
        return [next(computed) if layers is None else layers for layers in found]

    def begin_update(self, sentences: Sentences) -> Tuple[List[Floats3d], Backprop]:
        """As `encode`, keeping what it takes to train the biLM."""
        words, ids = number_words(sentences)
        batches = list(make_batches(ids, self.max_batch_tokens, share=False))
        with torch.enable_grad():
            table = self.bilm.encode_words(words)
            ys = [self.bilm(table, batch)[0] for batch in batches]
        layers = {}
        for batch, y in zip(batches, ys):
            flat = y.detach().cpu().numpy()
            for row, (start, end) in zip(batch.rows, batch.spans):
                layers[row] = flat[start:end]

        def backprop(d_layers: List[Floats3d]) -> None:
            gradients = [
                torch.from_numpy(np.concatenate([d_layers[row] for row in batch.rows]))
                for batch in batches
            ]
            torch.autograd.backward(ys, [dy.to(table.device) for dy in gradients])

        return [layers[row] for row in range(len(sentences))], backprop

    def finish_update(self, optimizer: Any) -> None:
        if not self.trainable:
            return
        self._file = None
        for name, param in self.bilm.named_parameters():
            if param.grad is not None:
                updated, _ = optimizer(
                    (self.id, name), torch2xp(param.data), torch2xp(param.grad)
                )
                param.data = xp2torch(updated, device=param.device)
                param.grad = None

    @contextlib.contextmanager
    def use_params(self, params: Dict[Any, Any]) -> Iterator[None]:
        # No `torch.no_grad()` around the `yield`: spaCy leaves the contexts of its
        # components in the order in which it entered them, and then the last one
        # to leave would restore the "off" of the first.
        backup = []
        for name, param in self._model.named_parameters() if self.trainable else ():
            if (self.id, name) in params:
                backup.append((param, param.data))
                param.data = xp2torch(params[(self.id, name)], device=param.device)
        try:
            yield
        finally:
            for param, data in backup:
                param.data = data

    def to_device(self, device_type: str, device_id: int) -> None:
        # The biLM stays where it is; vectors move with the ops of the layers.
        pass

    def to_bytes(self) -> bytes:
        message: Dict[str, Any] = {"meta": self.meta}
        with make_tempdir() as folder:
            self.bilm.save(folder, dtype=self._exact_dtype())
            for name in (OPTIONS, WEIGHTS):
                message[name] = (folder / name).read_bytes()
        return srsly.msgpack_dumps(message)  # type: ignore[no-any-return]

    def from_bytes(self, data: bytes) -> "BiLMShim":
        message = srsly.msgpack_loads(data)
        with make_tempdir() as folder:
            for name in (OPTIONS, WEIGHTS):
                (folder / name).write_bytes(message[name])
            self._set(BiLM.from_path(folder))
        self.meta = message["meta"]
        return self

    def to_directory(self, directory: Path) -> None:
        """Write options.json and weights.hdf5. Weights that stand unchanged in a file
        of an earlier checkpoint are linked, where the file system can.
        """
        target = directory / WEIGHTS
        if self._file is not None and self._file.link(target):
            options = self.bilm.options.to_json()
            (directory / OPTIONS).write_text(options, encoding="utf8")
        else:
            self.bilm.save(directory, dtype=self._exact_dtype())
            if not self.trainable:
                self._file = SavedWeights.at(target)
        if self.meta is not None:
            (directory / META).write_text(self.meta, encoding="utf8")

    def from_directory(self, directory: Path) -> "BiLMShim":
        weights = directory / WEIGHTS
        self._set(BiLM.from_path(weights))
        self.meta = _read_meta(weights)
        self._file = SavedWeights.at(weights)
        return self

    def _set(self, bilm: BiLM) -> None:
        device = choose_device(self.device)
        bilm.use_precision(choose_precision(self.precision, device))
        with LOCK:
            bilm.to(device)
            self._model = bilm.requires_grad_(self.trainable)
            self._file = None
            self.words.clear()
            self.sentences.clear()

    def _exact_dtype(self) -> str:
        """float16 where that loses nothing: weights that came in it go out in it."""
        exact = all(
            torch.equal(p.half().float(), p.float()) for p in self.bilm.parameters()
        )
        return "float16" if exact else "float32"

    def __deepcopy__(self, memo: Dict[int, Any]) -> "BiLMShim":
        # What Shim.copy calls. A trainable copy is a model of its own to the optimizer.
        if not self.trainable:
            memo[id(self._model)] = self._model
        copied = BiLMShim.__new__(BiLMShim)
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        copied.id = Shim(None).id
        return copied


def _read_meta(path: Path) -> Optional[str]:
    meta = (path if path.is_dir() else path.parent) / META
    return meta.read_text(encoding="utf8") if meta.is_file() else None
