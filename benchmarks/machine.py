"""The machine of a measurement, and what its matrix products reach."""

import os
import platform
import time
from pathlib import Path

import torch


def machine(threads: int = 0) -> str:
    """The processor, and its cores or the threads used of it."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [x for x in info.read_text().split("\n") if x.startswith("model name")]
        cpu = lines[0].split(":")[1].strip() if lines else cpu
    if threads:
        return f"{cpu}, {threads} threads, torch {torch.__version__}"
    return f"{cpu}, {os.cpu_count()} cores"


def peak_products(dtype: torch.dtype, size: int = 2048) -> float:
    """Operations a second of a large square matrix product, the best of several."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    times = []
    for _ in range(8):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)
