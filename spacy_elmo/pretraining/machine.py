"""What a run takes of its machine: memory, precision, and whether it compiles."""

import ctypes
import importlib.util
import os
import shutil
from contextlib import suppress

import torch

from ..bilm.kernels import use_fusion
from ..bilm.precision import choose_precision
from ..bilm.tuning import MIN_STEPS_TO_COMPILE
from .config import Settings
from .corpus import Corpus
from .distributed import Processes
from .run import Run, count_steps, start_run

# Of malloc.h in glibc.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def prepare_run(settings: Settings, corpus: Corpus, processes: Processes) -> Run:
    """A run before its first update. Where precision and compile are "auto", they are
    chosen here.
    """
    # oneDNN keeps a compiled product for each shape, 1024 by default. Each batch has
    # another number of distinct words: in bfloat16 that would grow by gigabytes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    keep_freed_memory()
    training, device = settings.training, processes.device
    precision = choose_precision(training.precision, device, among=("bfloat16",))
    fuses = training.compile
    if fuses == "auto":
        is_long = count_steps(training, corpus) >= MIN_STEPS_TO_COMPILE
        fuses = is_long and _has_compiler(device)
    use_fusion(fuses)
    training = training.model_copy(update={"precision": precision, "compile": fuses})
    settings = settings.model_copy(update={"training": training})
    return start_run(settings, corpus, processes)


def keep_freed_memory() -> None:
    """Let glibc keep what this process frees. Each step needs tensors of the same sizes
    as the last: to return their pages and to get them anew is 4 to 12 % of a step in
    float32. Other libraries are left as they are.
    """
    with suppress(AttributeError, OSError, TypeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(M_MMAP_THRESHOLD, 1 << 30)
        set_option(M_TRIM_THRESHOLD, (1 << 31) - 1)


def _has_compiler(device: torch.device) -> bool:
    """Whether torch.compile has what it needs."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    named = os.environ.get("CXX", "g++")
    return any(shutil.which(compiler) for compiler in (named, "clang++"))
