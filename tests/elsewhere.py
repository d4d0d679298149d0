"""A device "elsewhere", which finds tensors that were left on the CPU without a GPU.
Its tensors are in this memory, but refuse to be mixed with those of the CPU. PyTorch
has no public way to make a device in Python; where its private one is missing,
test_elsewhere.py is skipped.

    python elsewhere.py WEIGHTS FOLDER    # prints what test_elsewhere.py looks at
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import made_up
import numpy as np
import spacy
import torch
from thinc.api import Config
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from spacy_elmo.bilm import BiLM, precision
from spacy_elmo.pretraining import training
from spacy_elmo.pretraining.config import read_settings
from spacy_elmo.pretraining.distributed import Processes

NAME = "elsewhere"
DEVICES = "cpu", f"{NAME}:0"
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
INDEXING = {
    aten.index.Tensor, aten.index_put.default, aten.index_put_.default,
    aten._index_put_impl_.default,
}  # fmt: skip
# Numbers that came from the CPU: while the biLM runs, only ids do.
arrivals = []


class Elsewhere(torch.Tensor):
    @staticmethod
    def __new__(cls, raw):
        return torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(),
            dtype=raw.dtype, device=DEVICES[1],
        )  # fmt: skip

    def __init__(self, raw):
        self.raw = raw

    def tolist(self):
        return self.raw.tolist()

    def numpy(self):
        raise TypeError("can't convert a tensor that is elsewhere to numpy")

    def __reduce_ex__(self, protocol):
        return self.raw.__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return run(op, args, kwargs or {})


def run(op, args, kwargs):
    tensors = [t for t in tree_flatten((args, kwargs))[0] if torch.is_tensor(t)]
    there = [t for t in tensors if isinstance(t, Elsewhere)]
    here = [t for t in tensors if not isinstance(t, Elsewhere) and t.dim()]
    if op in INDEXING and isinstance(args[0], Elsewhere):
        here = [t for t in here if t.is_floating_point()]
    if here and there and op not in COPIES:
        raise RuntimeError(f"{op}: {len(here)} tensors on the CPU, {len(there)} not")
    if there and here and op is aten.copy_.default and here[0] is args[1]:
        arrivals.extend(here if here[0].is_floating_point() else [])
    kwargs = dict(kwargs)
    goes_there = bool(there)
    if kwargs.get("device") is not None:
        goes_there = torch.device(kwargs["device"]).type == NAME
        kwargs["device"] = torch.device("cpu")
    elif op in COPIES:
        goes_there = isinstance(args[0], Elsewhere)
    same = {id(raw_of(t)): t for t in tensors}
    found = op(*tree_map(raw_of, args), **tree_map(raw_of, kwargs))

    def wrap(x):
        if not torch.is_tensor(x):
            return x
        return same.get(id(x)) if id(x) in same else Elsewhere(x) if goes_there else x

    return tree_map(wrap, found)


def raw_of(x):
    return x.raw if isinstance(x, Elsewhere) else x


def setup():
    _setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda op, *args, **kwargs: run(op, args, kwargs), "PrivateUse1")
    return library


def difference(found, wanted):
    return max(float(np.abs(x - y).max()) for x, y in zip(found, wanted))


def sentences():
    return [line.split() for line in made_up.text(6, seed=1).splitlines() if line]


def encode(weights):
    """Differences of the layers and of the states, of sentences that start from zeros
    and of sentences that go on from a state.
    """
    found = {}
    precision.has_fast_bfloat16 = lambda _: True
    for name in ("float32", "bfloat16"):
        layers, states = [], []
        for device in DEVICES:
            bilm = BiLM.from_path(weights).to(device).use_precision(name)
            arrivals.clear()
            first, state = bilm.encode(sentences())
            second, state = bilm.encode(sentences(), state)
            assert not arrivals
            assert state.h.device == torch.device(device)
            layers.append([*first, *second])
            states.append([part.cpu().numpy() for part in state])
        found[name] = difference(*layers), difference(*states)
    return found


def pipe(weights):
    """Difference of doc._.elmo, where words and sentences come again."""
    found = []
    for device in DEVICES:
        nlp = spacy.blank("en")
        model = {"weights": str(weights), "device": device}
        nlp.add_pipe("elmo", config={"model": model})
        texts = [" ".join(sentence) for sentence in 2 * sentences()]
        found.append([doc._.elmo for doc in nlp.pipe(texts, batch_size=5)])
    return difference(*found)


def pretrain(folder):
    """Perplexities of a run, of the same prolonged, and of one that starts from it."""
    text = folder / "text.txt"
    text.write_text(made_up.text(5))
    paper = {"state": "carried", "softmax": {"kind": "sampled", "n_samples": 8}}
    found = []
    for device in DEVICES:
        processes = Processes(device=torch.device(device))
        training.joined_processes = lambda _, found=processes: nullcontext(found)
        output = folder / device[:3]
        found.append([])
        for path, start, settings in (
            (output, None, {"max_tokens": 40, **paper}),
            (output, None, {"max_tokens": 60, **paper}),
            (output / "adapted", str(output), {"max_tokens": 60}),
        ):
            settings.update(unroll_steps=5, eval_steps=99)
            config = made_up.pretrain_config(text, text, **settings)
            config["paths"]["init_from"] = start
            Config(config).to_disk(folder / "config.cfg")
            settings = read_settings(folder / "config.cfg")
            perplexity = training.pretrain(settings, path)
            found[-1].append(perplexity.average)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    library = setup()
    weights, folder = map(Path, sys.argv[1:])
    adamw = torch.optim.AdamW
    # Torch fuses it for the devices that it knows.
    torch.optim.AdamW = lambda *args, **kw: adamw(*args, **{**kw, "fused": False})
    found = {
        "encode": encode(weights),
        "pipe": pipe(weights),
        "pretrain": pretrain(folder),
    }
    print(json.dumps(found))
