"""Tokens per second of pretraining, beside a plain PyTorch trainer and the machine's
matrix products.

    python benchmarks/pretrain.py --text heldout.txt --peers FOLDER --output benchmarks
    python benchmarks/pretrain.py --text heldout.txt --against CHECKOUT

The plain trainer is what the same model takes in ordinary PyTorch: nn.Conv1d over
every distinct word, nn.LSTM with proj_size, the same sampled softmax by autograd,
AdamW, float32. It stops short of clips, residuals and of starting sentences anew,
which only makes it faster. simple_elmo's trainer is bilm-tf's; it lives in an
environment of its own, which is made in FOLDER if it is not there yet. CHECKOUT is
another commit of this repository. The arms take turns; ratios are medians over the
turns.
"""

import argparse
import json
import os
import statistics
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict

import numpy as np
import torch
from harness import (
    ROOT,
    machine,
    make_parser,
    peak_products,
    ratio,
    save,
    table,
    take_turns,
    timed,
)
from peers import start, start_peer
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_elmo.bilm import Options
from spacy_elmo.bilm.characters import EOS, PADDING
from spacy_elmo.bilm.kernels import use_fusion
from spacy_elmo.pretraining.config import Settings, read_settings
from spacy_elmo.pretraining.corpus import Corpus, load_corpora
from spacy_elmo.pretraining.machine import keep_freed_memory
from spacy_elmo.pretraining.run import start_run, train_step
from spacy_elmo.pretraining.softmax import draw_sample
from spacy_elmo.pretraining.vocabulary import write_vocabulary

CONFIG = "configs/pretrain_small.cfg"
WARM_UP = 3
ANOTHER_COMMIT = """
import json
import sys
from pathlib import Path
import torch
import pretrain
config, changes, folder, threads, compiled = json.loads(sys.argv[1])
torch.set_num_threads(threads)
if compiled:
    pretrain.compile_all()
settings = pretrain.read_settings(config, changes)
corpus = pretrain.load_corpora(settings, Path(folder))[0]
step = pretrain.our_step(settings, corpus)
print("ready", flush=True)
for _ in sys.stdin:
    step()
    print("done", flush=True)
"""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", required=True, help="Text of some 10,000 tokens")
    parser.add_argument("--peers", type=Path, help="Folder of simple_elmo")
    parser.add_argument("--against", type=Path, help="Checkout of another commit")
    parser.add_argument("--config", default=str(ROOT / CONFIG))
    parser.add_argument("--dim", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    if not args.no_compile:
        compile_all()
    results = {
        "machine": machine(args.threads),
        "compiled": not args.no_compile,
        "geometries": [measure(dim, args) for dim in args.dim],
    }
    save("pretrain", results, render(results), args.output)


def compile_all() -> None:
    # A variant of each function for each width and precision.
    torch._dynamo.config.recompile_limit = 64
    use_fusion(True)


def measure(dim: int, args: argparse.Namespace) -> Dict[str, Any]:
    """All arms for one width of the LSTM."""
    changes = {
        "paths.train": str(Path(args.text).resolve()), "model.lstm.dim": dim,
        "training.rows": args.rows, "corpus.ascii_quotes": 0.0,
    }  # fmt: skip
    with TemporaryDirectory() as cache, ExitStack() as processes:
        of_precision = {
            p: {**changes, "training.precision": p} for p in args.precisions
        }
        full = read_settings(args.config, of_precision["float32"])
        corpus, _ = load_corpora(full, Path(cache))
        arms = {"plain PyTorch, float32": plain_step(full, corpus)}
        for precision, changes in of_precision.items():
            settings = read_settings(args.config, changes)
            arms[f"spacy_elmo, {precision}"] = our_step(settings, corpus)
            if args.against is not None:
                process = start_commit(changes, Path(cache) / precision, args)
                processes.callback(process.terminate)
                arms[f"{args.against.name}, {precision}"] = partial(ask, process)
        if args.peers is not None:
            process = start_simple_elmo(full, corpus, Path(cache), args)
            processes.callback(process.terminate)
            arms["simple_elmo, float32"] = partial(ask, process)
        runs = {name: timed(step) for name, step in arms.items()}
        seconds = take_turns(runs, args.turns, WARM_UP)
    n_tokens = full.training.tokens_per_step
    n_products = products(full, corpus) * n_tokens
    peak = {p: peak_products(getattr(torch, p)) for p in args.precisions}
    found: Dict[str, Any] = {"geometry": f"2x{dim}/128", "arms": {}, "peak": peak}
    for name, times in seconds.items():
        precision = name.split(", ")[-1]
        median = statistics.median(times)
        others = {
            "plain": seconds["plain PyTorch, float32"],
            "simple_elmo": seconds.get("simple_elmo, float32"),
        }
        if args.against is not None:
            others[args.against.name] = seconds.get(f"{args.against.name}, {precision}")
        found["arms"][name] = {
            "tokens_per_second": n_tokens / median,
            "ratios": {
                x: ratio(theirs, times) for x, theirs in others.items() if theirs
            },
            "share_of_bound": n_products / median / peak[precision],
        }
    return found


def our_step(settings: Settings, corpus: Corpus) -> Callable[[], None]:
    run = start_run(settings, corpus)
    run.n_steps = 10_000
    return lambda: train_step(run, run.rows.read())


def start_commit(
    changes: Dict[str, Any], folder: Path, args: argparse.Namespace
) -> Any:
    """Our trainer as it is in another commit, ready for steps."""
    folder.mkdir()
    checkout = args.against.resolve()
    task = [str(checkout / CONFIG), changes, str(folder), args.threads]
    task.append(not args.no_compile)
    return start(
        args.against.name,
        [sys.executable, "-c", ANOTHER_COMMIT, json.dumps(task)],
        env={**os.environ, "PYTHONPATH": str(checkout / "benchmarks")},
        cwd=checkout,  # where Python finds spacy_elmo
    )


def start_simple_elmo(
    settings: Settings, corpus: Corpus, folder: Path, args: argparse.Namespace
) -> Any:
    """simple_elmo's trainer in its own environment, ready for steps of that size."""
    options = settings.options.to_dict()
    options["char_cnn"]["n_characters"] = 261  # as its trainer counts them
    options.update(
        bidirectional=True, dropout=settings.training.dropout, all_clip_norm_val=10.0,
        n_tokens_vocab=corpus.vocab_size, sample_softmax=True,
        n_negative_samples_batch=settings.training.softmax.n_samples,
        batch_size=settings.training.rows, unroll_steps=settings.training.unroll_steps,
    )  # fmt: skip
    (folder / "options.json").write_text(json.dumps(options))
    write_vocabulary(folder / "vocab.txt", corpus.words[: corpus.vocab_size])
    with (folder / "text.txt").open("w", encoding="utf8") as file:
        for i in range(corpus.n_documents):
            words = [corpus.words[w] for w in corpus.document(i)]
            file.write(" ".join(words).replace(EOS, "\n"))
    return start_peer("simple_elmo_training", folder, args.peers, args.threads)


def ask(process: Any) -> None:
    process.stdin.write('{"batches": [[]]}\n')
    process.stdin.flush()
    assert process.stdout.readline()


def plain_step(settings: Settings, corpus: Corpus) -> Callable[[], None]:
    model = PlainModel(settings.options, corpus.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = start_run(settings, corpus).rows
    rng = np.random.default_rng(0)

    def step() -> None:
        batch = rows.read()
        sample = draw_sample(
            rng, settings.training.softmax.n_samples, corpus.vocab_size
        )
        targets = torch.from_numpy(corpus.in_vocabulary(batch.targets)).long()
        loss = model(
            torch.from_numpy(corpus.characters[batch.words]).long(),
            torch.from_numpy(batch.places.reshape(batch.inputs.shape)),
            targets,
            sample.ids,
            sample.log_expected(sample.ids),
            sample.log_expected(targets),
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


class PlainModel(nn.Module):
    """The same language model in ordinary PyTorch."""

    def __init__(self, options: Options, vocab_size: int):
        super().__init__()
        char_cnn, lstm = options.char_cnn, options.lstm
        n, width = char_cnn.n_filters, lstm.projection_dim
        self.embed = nn.Embedding(261, char_cnn.embedding.dim)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(char_cnn.embedding.dim, n_w, w) for w, n_w in char_cnn.filters
        )
        self.transform, self.carry = nn.Linear(n, n), nn.Linear(n, n)
        self.project = nn.Linear(n, width)
        self.lstms = nn.ModuleList(
            nn.LSTM(width, lstm.dim, lstm.n_layers, proj_size=width) for _ in range(2)
        )
        self.softmax = nn.Embedding(vocab_size, width)
        self.bias = nn.Embedding(vocab_size, 1)

    def forward(
        self, characters: Tensor, where: Tensor, targets: Tensor, sample: Tensor,
        log_sample: Tensor, log_target: Tensor,
    ) -> Tensor:  # fmt: skip
        embedded = self.embed(characters).transpose(1, 2)
        x = torch.cat([torch.relu(c(embedded).amax(2)) for c in self.convolutions], 1)
        gate = torch.sigmoid(self.carry(x))
        x = self.project(gate * torch.relu(self.transform(x)) + (1 - gate) * x)
        losses = []
        for d in range(2):
            h = self.lstms[d](F.embedding(where[d], x))[0].flatten(0, 1)
            target = targets[d].flatten()
            true = (h * self.softmax(target)).sum(1) + self.bias(target)[:, 0]
            true = true - log_target[d].flatten()
            negative = h @ self.softmax(sample).t() + self.bias(sample)[:, 0]
            negative = negative - log_sample
            negative = negative.masked_fill(target[:, None] == sample, -torch.inf)
            logits = torch.cat([true[:, None], negative], 1)
            losses.append(F.cross_entropy(logits, torch.zeros_like(target)))
        return (losses[0] + losses[1]) / 2


def products(settings: Settings, corpus: Corpus) -> float:
    """Floating-point operations of the matrix products for a token of the corpus, in
    both directions: each multiplies twice more in the backward pass.
    """
    lstm, char_cnn = settings.options.lstm, settings.options.char_cnn
    P, n, d = lstm.projection_dim, char_cnn.n_filters, char_cnn.embedding.dim
    per_token = 2 * lstm.n_layers * (2 * P * 4 * lstm.dim + lstm.dim * P)
    per_token += 2 * P * settings.training.softmax.n_samples
    rows = start_run(settings, corpus).rows
    words = rows.read().words
    lengths = (corpus.characters[words] != PADDING).sum(1).mean()
    widest = max(w for w, _ in char_cnn.filters)
    per_word = lengths * widest * d * n + char_cnn.n_highway * 2 * n * n + n * P
    share = len(words) / settings.training.tokens_per_step
    return float(2 * 3 * (per_token + share * per_word))


def render(results: Dict[str, Any]) -> str:
    arms = [
        (found["geometry"], name, arm)
        for found in results["geometries"]
        for name, arm in found["arms"].items()
    ]
    others = list(arms[0][2]["ratios"])
    rows = [
        [geometry, name, f"{arm['tokens_per_second']:,.0f}",
         *(f"{arm['ratios'][x]:.2f}x" for x in others), f"{arm['share_of_bound']:.2f}"]
        for geometry, name, arm in arms
    ]  # fmt: skip
    header = ["geometry", "trainer", "tokens/s", *(f"against {x}" for x in others),
              "share of the bound"]  # fmt: skip
    peaks = ", ".join(
        f"{value / 1e9:,.0f} GFLOP/s ({name})"
        for name, value in results["geometries"][0]["peak"].items()
    )
    bound = f"The bound: matrix products of 2048 x 2048 at {peaks}.\n"
    about = f"Pretraining, {results['machine']}.\n"
    return "\n".join([about, table(header, rows), bound])


if __name__ == "__main__":
    main()
