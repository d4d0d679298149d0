import contextlib
import copy
import io
import json
import os
import warnings
from pathlib import Path
from threading import RLock
from typing import Any, Dict, Iterator, Optional, Tuple, Union

import srsly
import torch
from thinc.api import get_current_ops, torch2xp, xp2torch
from thinc.shims.shim import Shim

from ..bilm import BiLM
from ..bilm.files import ModelFiles
from ..bilm.official_format import read_files, write_bilm, write_hdf5
from ..errors import Errors, Warnings
from ..weights import resolve
from .forks import guard
from .sentence_cache import SentenceCache
from .word_cache import WordCache

PRECISIONS = ("float32", "bfloat16")
# What multiplies bfloat16 fast.
FAST_BFLOAT16 = {"cpu": "AVX512-BF16 or AMX", "cuda": "compute capability 8.0"}


class BiLMShim(Shim):
    """Holds the biLM for Thinc. Nothing is opened before the first use. Frozen, it
    is never changed, and so it is shared by copies.

    source (str): Name or path of the weights.
    precision (str): "float32" or "bfloat16".
    cache_bytes (int): Size of the cache of token vectors.
    sentences (SentenceCache): The layers of sentences, in training.
    device (str): Where the biLM runs; None for where Thinc does.
    """

    def __init__(
        self,
        source: str,
        precision: str,
        cache_bytes: int,
        sentences: SentenceCache,
        device: Optional[str] = None,
    ):
        if precision not in PRECISIONS:
            raise ValueError(Errors.E021.format(precision=precision))
        super().__init__(None)
        self.source = source
        self.precision = precision
        self.trainable = False
        self.cache = WordCache(cache_bytes)
        self.sentences = sentences
        self.device = device
        self._lock = RLock()
        # The file that holds these very weights, if there is one: (path, stamp).
        self._file: Optional[Tuple[Path, Tuple[int, ...]]] = None
        guard(self)

    @property
    def bilm(self) -> BiLM:
        """The biLM, read now if it was not yet."""
        with self._lock:
            if self._model is None:
                self._set(BiLM.from_path(resolve(self.source)))
            bilm: BiLM = self._model
            return bilm

    @property
    def is_loaded(self) -> bool:
        return self._model is not None

    def make_trainable(self) -> None:
        self.trainable = True
        self.precision = "float32"
        # A word's vector changes with each update.
        self.cache = WordCache(0)
        self.sentences = SentenceCache(0)

    def open_sentences(self) -> None:
        """From now on, in training, keep the layers of sentences."""
        if not self.trainable and not self.sentences.is_open:
            self.sentences.open(self.bilm, self.precision)

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
        mine = {
            name: params[(self.id, name)]
            for name, _ in (self._model.named_parameters() if self.trainable else ())
            if (self.id, name) in params
        }
        # No `torch.no_grad()` around the `yield`: spaCy leaves the contexts of its
        # components in the order in which it entered them, and then the last one
        # to leave would restore the "off" of the first.
        backup = {}
        for name, param in self._model.named_parameters() if mine else ():
            if name in mine:
                backup[name] = param.data
                param.data = xp2torch(mine[name], device=param.device)
        try:
            yield
        finally:
            for name, data in backup.items():
                self._model.get_parameter(name).data = data

    def copy(self) -> "BiLMShim":
        sentences = SentenceCache(self.sentences.max_bytes, self.sentences.folder)
        copied = BiLMShim(
            self.source, self.precision, self.cache.max_bytes, sentences, self.device,
        )  # fmt: skip
        copied.trainable = self.trainable
        copied._file = self._file
        copied._model = copy.deepcopy(self._model) if self.trainable else self._model
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        # The biLM stays where it is; vectors move with the ops of the layers.
        pass

    def to_bytes(self) -> bytes:
        buffer = io.BytesIO()
        write_hdf5(self.bilm, buffer, dtype=self._exact_dtype())
        options = json.dumps(self.bilm.options.to_dict())
        message = {"options": options, "weights": buffer.getvalue()}
        return srsly.msgpack_dumps(message)  # type: ignore[no-any-return]

    def from_bytes(self, data: bytes) -> "BiLMShim":
        message = srsly.msgpack_loads(data)
        files = ModelFiles(
            "options", message["options"], "weights", io.BytesIO(message["weights"])
        )
        self._set(read_files(files))
        return self

    def to_directory(self, directory: Path) -> None:
        """Write options.json and weights.hdf5. Weights that stand unchanged in a file
        of an earlier checkpoint are linked, where the file system can.
        """
        bilm = self.bilm
        target = directory / "weights.hdf5"
        if not self._link(target):
            write_bilm(bilm, directory, dtype=self._exact_dtype())
            if not self.trainable:
                self._file = (target.absolute(), _stamp(target))
        options = json.dumps(bilm.options.to_dict(), indent=2) + "\n"
        (directory / "options.json").write_text(options, encoding="utf8")

    def from_directory(self, directory: Path) -> "BiLMShim":
        self._set(BiLM.from_path(directory))
        weights = next(directory.glob("*.hdf5")).absolute()
        self._file = (weights, _stamp(weights))
        return self

    def _set(self, bilm: BiLM) -> None:
        device = choose_device(self.device)
        if self.precision == "bfloat16":
            if has_fast_bfloat16(device.type):
                bilm.use_bfloat16()
            else:
                missing = FAST_BFLOAT16[device.type]
                warning = Warnings.W002.format(device=device.type, missing=missing)
                warnings.warn(warning, stacklevel=2)
        with self._lock:
            bilm.to(device)
            self._model = bilm.requires_grad_(self.trainable)
            self._file = None
            self.cache.clear()
            self.sentences.clear()

    def _exact_dtype(self) -> str:
        """float16 where that loses nothing: weights that came in it go out in it."""
        exact = all(
            torch.equal(p.half().float(), p.float()) for p in self.bilm.parameters()
        )
        return "float16" if exact else "float32"

    def _link(self, target: Path) -> bool:
        if self._file is None:
            return False
        source, stamp = self._file
        try:
            if _stamp(source) != stamp:
                return False
            if not (target.exists() and source.samefile(target)):
                target.unlink(missing_ok=True)
                os.link(source, target)
        except OSError:
            return False
        return True

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(self.__dict__)
        del state["_lock"]
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = RLock()
        guard(self)

    def after_fork(self) -> None:
        self._lock = RLock()
        self.cache.after_fork()
        self.sentences.after_fork()


def has_fast_bfloat16(device: str) -> bool:
    """Whether this CPU or GPU multiplies bfloat16 faster than float32.

    device (str): "cpu", "cuda" ...
    """
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    if device != "cpu":
        return True
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in probes)


def choose_device(name: Optional[str]) -> torch.device:
    """The device of that name; None for where Thinc's ops are.

    RAISES (ValueError): If this machine has no such device.
    """
    if name is None:
        on_gpu = get_current_ops().device_type == "gpu" and torch.cuda.is_available()
        return torch.device("cuda" if on_gpu else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        reason = str(e).split("\n")[0]
        raise ValueError(Errors.E041.format(device=name, reason=reason)) from None
    return device


def _stamp(path: Union[str, Path]) -> Tuple[int, ...]:
    stat = os.stat(path)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)
