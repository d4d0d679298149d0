import contextlib
import copy
import os
import secrets
import warnings
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import srsly
import torch
from spacy.util import make_tempdir
from thinc.api import NumpyOps, Optimizer, get_current_ops, torch2xp, xp2torch
from thinc.shims.shim import Shim
from torch import nn

from ..bilm import BiLM
from ..bilm.batching import make_batches
from ..bilm.characters import number_words
from ..bilm.model import Floats3d
from ..bilm.paths import OPTIONS_FILE, WEIGHTS_FILE
from ..errors import Errors, Warnings
from ..processes import LOCK
from ..storage import beside
from ..weights import resolve
from .caches import SentenceCache, WordCache

Backprop = Callable[[List[Floats3d]], None]
# A file, and its inode, size and time of change when it was last read or written.
SavedFile = Tuple[Path, int, int, int]

META_FILE = "meta.json"  # has the license of the weights
SOURCE = "source"  # beside the files in bytes


@dataclass(eq=False)
class BiLMShim(Shim):
    """Holds the biLM and its caches for Thinc. Nothing is opened before the first use.
    Frozen, the biLM never changes, and copies share it. Safe under threads.

    source (str): Name or path of the weights. The other arguments: see build_bilm.
    """

    source: str
    precision: str
    device: Optional[str]
    max_batch_tokens: int
    word_cache: WordCache
    sentence_cache: SentenceCache
    trainable: bool = False
    learn_rate_scale: float = 1.0  # if trainable: times the optimizer's
    # The content of META_FILE, which is saved with the weights.
    meta: Optional[bytes] = None
    # The file that holds these very weights, if there is one.
    _file: Optional[SavedFile] = None
    _digest: Optional[str] = None
    # Whether the weights were read from `source`, and whether a task changed them.
    _is_of_source: bool = False
    _is_changed: bool = False

    def __post_init__(self) -> None:
        super().__init__(None)

    @property
    def bilm(self) -> BiLM:
        """The biLM, read now if it was not yet."""
        with LOCK:
            if self._model is None:
                self._load_source()
            return self._model

    def reset(self) -> None:
        """Undo what tasks have trained: `nlp.initialize` begins anew. Not for the
        weights of a trained pipeline, whose `source` may be gone.
        """
        with LOCK:
            if self._is_changed and self._is_of_source:
                self._load_source()

    def _load_source(self) -> None:
        self._load(resolve(self.source))
        self._is_of_source = True

    @property
    def digest(self) -> str:
        """A name for the weights, which are read now if they were not yet."""
        with LOCK:
            if self._digest is None:
                self._digest = self.bilm.digest()
            return self._digest

    def make_trainable(self, learn_rate_scale: float) -> None:
        self.trainable, self.learn_rate_scale = True, learn_rate_scale
        self.precision = "float32"
        # A word's vector changes with each update.
        self.word_cache = WordCache(0)
        self.sentence_cache = SentenceCache(0)

    def open_sentence_cache(self) -> None:
        """From now on, in training, keep the layers of sentences."""
        with LOCK:
            self.sentence_cache.open(self.bilm, self.digest)

    def encode(self, sentences: Sequence[List[str]]) -> List[Floats3d]:
        """The layers of each sentence, (n_words, L + 1, width)."""
        with LOCK:
            found = self.sentence_cache.get(sentences)
        new = [s for s, layers in zip(sentences, found) if layers is None]
        words, ids = number_words(new)
        with LOCK:
            table = self.word_cache.lookup(self.bilm, words)
        most = self.max_batch_tokens
        encoded = self.bilm.encode_ids(table, ids, max_batch_tokens=most)
        with LOCK:
            self.sentence_cache.put(new, encoded)
        computed = iter(encoded)
        return [next(computed) if layers is None else layers for layers in found]

    def encode_in_training(
        self, sentences: Sequence[List[str]]
    ) -> Tuple[List[Floats3d], Optional[Backprop]]:
        """As `encode`, and what gives a trainable biLM the gradient of its layers."""
        if not self.trainable or not sentences:
            self.open_sentence_cache()
            return self.encode(sentences), None
        words, ids = number_words(sentences)
        batches = list(make_batches(ids, self.max_batch_tokens, share=False))
        with torch.enable_grad():
            table = self.bilm.encode_words(words)
            y = torch.cat([self.bilm(table, batch)[0] for batch in batches])
        order = [i for batch in batches for i in batch.order]
        ends = np.cumsum([len(ids[row]) for row in order])
        layers = dict(zip(order, np.split(y.detach().cpu().numpy(), ends)))

        def backprop(d_layers: List[Floats3d]) -> None:
            dy = np.concatenate([d_layers[row] for row in order])
            y.backward(torch.from_numpy(dy).to(y.device))

        return [layers[row] for row in range(len(sentences))], backprop

    def _trained(self) -> List[Tuple[str, nn.Parameter]]:
        """The parameters that the task trains, with their names."""
        return list(self.bilm.named_parameters()) if self.trainable else []

    def finish_update(self, optimizer: Any) -> None:
        # In `rehearse` it is a function of spaCy's, which collects the gradients.
        is_optimizer = isinstance(optimizer, Optimizer)
        scale = {"lr_scale": self.learn_rate_scale} if is_optimizer else {}
        # Without CuPy, spaCy is on the CPU; the biLM may be on a GPU all the same.
        current = get_current_ops()
        ops = current if isinstance(current, NumpyOps) else None
        for name, param in self._trained():
            if param.grad is None:
                continue
            x, dx = torch2xp(param.data, ops=ops), torch2xp(param.grad, ops=ops)
            updated, _ = optimizer((self.id, name), x, dx, **scale)
            # Copied, even if it is the same memory: assigned to `param.data`, each new
            # tensor would keep the one before it alive. Through `.data`, which autograd
            # does not count as a change: spaCy updates a shared tok2vec before its
            # listeners' backward pass.
            param.data.copy_(xp2torch(updated, device=param.device))
            param.grad = None
            self._digest = None  # of other weights now
            self._is_changed = True

    @contextlib.contextmanager
    def use_params(self, params: Dict[Any, Any]) -> Iterator[None]:
        # No `torch.no_grad()` around the `yield`: spaCy leaves the contexts of its
        # components in the order in which it entered them, and then the last one
        # to leave would restore the "off" of the first.
        backup = []
        for name, param in self._trained():
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
        known = self._file
        with make_tempdir() as folder:
            self.to_directory(folder)
            files = {file.name: file.read_bytes() for file in folder.iterdir()}
        self._file = known  # not the temporary one
        return srsly.msgpack_dumps({**files, SOURCE: self.source})

    def from_bytes(self, data: bytes) -> "BiLMShim":
        files = srsly.msgpack_loads(data)
        own = files.get(SOURCE, self.source)
        if own != self.source:
            name = "spacy_elmo.BiLM.v1"
            warning = Warnings.W009.format(name=name, asked=self.source, own=own)
            warnings.warn(warning, stacklevel=2)
            self.source = own
        with make_tempdir() as folder:
            for name in {OPTIONS_FILE, WEIGHTS_FILE, META_FILE}.intersection(files):
                (folder / name).write_bytes(files[name])
            self._load(folder)
        return self

    def to_directory(self, directory: Path) -> None:
        """Write options.json and weights.hdf5. Weights that an earlier checkpoint has
        in a file are linked and not written again, if the file system supports it.
        """
        bilm, target = self.bilm, directory / WEIGHTS_FILE
        were_here = target.exists()
        # No file has weights that are being trained, nor their averages.
        file = None if self.trainable else self._file
        if file is not None and _link(file, target):
            options = bilm.options.to_json()
            (directory / OPTIONS_FILE).write_text(options, encoding="utf8")
        else:
            # float16 where that loses nothing: weights that came in it go out in it.
            exact = all(torch.equal(p.half().float(), p) for p in bilm.parameters())
            bilm.save(directory, dtype="float16" if exact else "float32")
            self._file = _look_at(target)
        meta = directory / META_FILE
        if self.meta is not None:
            meta.write_bytes(self.meta)
        elif were_here:
            meta.unlink(missing_ok=True)  # of the weights that were here before

    def from_directory(self, directory: Path) -> "BiLMShim":
        weights = directory / WEIGHTS_FILE
        self._load(weights)
        self._file = _look_at(weights)
        return self

    def _load(self, path: Path) -> None:
        """Read a biLM, and the META_FILE beside it."""
        bilm = BiLM.from_path(path).to(_choose_device(self.device))
        bilm.use_precision(self.precision)
        meta = beside(path, META_FILE)
        with LOCK:
            self._model = bilm.requires_grad_(self.trainable)
            self.meta = meta.read_bytes() if meta.is_file() else None
            self._file = self._digest = None
            self._is_of_source = self._is_changed = False
            self.word_cache.clear()
            self.sentence_cache.clear()

    def __deepcopy__(self, memo: Dict[int, Any]) -> "BiLMShim":
        # What Shim.copy calls. A trainable copy is a model of its own to the optimizer.
        if not self.trainable:
            memo[id(self._model)] = self._model
        copied = BiLMShim.__new__(BiLMShim)
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        copied.id = Shim(None).id
        return copied


def _choose_device(name: Optional[str]) -> torch.device:
    """The device of that name; None for where Thinc's ops are.

    RAISES (ValueError): If this machine has no such device.
    """
    if name is None:
        on_gpu = get_current_ops().device_type == "gpu" and torch.cuda.is_available()
        return torch.device("cuda" if on_gpu else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as e:
        reason = shorten(str(e).split("\n")[0], 100)  # torch may list twenty devices
        raise ValueError(Errors.E041.format(device=name, reason=reason)) from None
    return device


def _look_at(path: Path) -> SavedFile:
    stat = path.stat()
    # The file itself: a hard link to a symbolic link would be another of those.
    return path.resolve(), stat.st_ino, stat.st_size, stat.st_mtime_ns


def _link(file: SavedFile, target: Path) -> bool:
    """Link a file to another path, where the file system can.

    RETURNS (bool): Whether `target` is the file now. Not if it was changed since.
    """
    path = file[0]
    try:
        if _look_at(path) != file:
            return False
        if not (target.exists() and path.samefile(target)):
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
            os.link(path, temporary)
            os.replace(temporary, target)
    except OSError:
        return False
    return True
