"""Where the microseconds of a word go in a pipeline of elmo, a tagger and NER, and how
long one sentence of ten words takes.

    python benchmarks/profile_pipeline.py --text ewt/dev.tsv --output benchmarks

Docs are eight sentences of the text. Each part's time is its own, without that of the
parts that it calls; of the LSTMs it is split by torch's profiler. The components are
those of configs/ner_tagger.cfg, initialized and not trained: speed is the same.
"""

import statistics
import time
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import spacy
import torch
from harness import (
    PRODUCTS,
    ROOT,
    machine,
    make_parser,
    save,
    table,
    take_turns,
    timed,
)
from inputs import read_rows
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import NumpyOps, set_current_ops

from spacy_elmo.bilm import BiLM, lstm, model
from spacy_elmo.layers import doc_encoder
from spacy_elmo.layers.caches import WordCache

TURNS = 5
SENTENCES_OF_A_DOC = 8
LATENCY_WORDS = 10
# The layers of Thinc whose time has a row of its own.
LAYERS = {
    "elmo-listener": "listener",
    "elmo-mix": "mix",
    "hashembed": "hash embeddings and features",
    "extract_features": "hash embeddings and features",
    "ints-getitem": "hash embeddings and features",
    "maxout": "products above the listener",
    "softmax": "products above the listener",
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", type=Path, required=True, help="A treebank's TSV")
    parser.add_argument("--weights", default="en_elmo_sm")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--blis", type=int, default=1, help="0: products by NumPy")
    args = parser.parse_args()
    set_current_ops(NumpyOps(use_blis=bool(args.blis)))
    torch.set_num_threads(args.threads)
    rows = read_rows(args.text, args.words)
    nlp = make_pipeline(rows, args.weights, args.precision)
    results = {
        "machine": machine(args.threads),
        "weights": args.weights,
        "precision": args.precision,
        "BLIS": bool(args.blis),
        "words/s": words_per_second(nlp, rows, args.turns),
        "microseconds per word": profile(nlp, rows, args.turns),
        "milliseconds per sentence": latency(nlp, rows),
    }
    save("profile_pipeline", results, render(results), args.output)


def make_pipeline(rows: List[Any], weights: str, precision: str) -> Language:
    config = spacy.util.load_config(ROOT / "configs" / "ner_tagger.cfg")
    elmo = config["components"]["elmo"]["model"]
    elmo.update({"weights": weights, "precision": precision})
    spacy.util.fix_random_seed(0)
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    nlp.initialize(lambda: [make_example(nlp, sentence) for sentence in rows[:100]])
    return nlp


def make_example(nlp: Language, sentence: List[List[str]]) -> Example:
    """With tags, and an entity: there must be some."""
    words, tags = [row[1] for row in sentence], [row[4] for row in sentence]
    ents = ["B-FIRST", *["O" for _ in words[1:]]]
    reference = Doc(nlp.vocab, words=words, tags=tags, ents=ents)
    return Example(Doc(nlp.vocab, words=words), reference)


def make_docs(nlp: Language, rows: List[Any]) -> List[Doc]:
    docs = []
    for i in range(0, len(rows), SENTENCES_OF_A_DOC):
        sentences = rows[i : i + SENTENCES_OF_A_DOC]
        docs.append(Doc(nlp.vocab, words=[row[1] for s in sentences for row in s]))
    return docs


def words_per_second(nlp: Language, rows: List[Any], turns: int) -> Dict[str, float]:
    """Of the pipeline, and of each component alone on Docs that have what it reads."""
    n_words = sum(map(len, rows))
    with nlp.select_pipes(enable="elmo"):
        annotated = list(nlp.pipe(make_docs(nlp, rows)))

    def pipe(names: List[str]) -> Callable[[], float]:
        def run() -> float:
            docs = make_docs(nlp, rows)
            if "elmo" not in names:
                docs = [doc.copy() for doc in annotated]
            with nlp.select_pipes(enable=names):
                return timed(lambda: list(nlp.pipe(docs)))()

        return run

    arms = {"all": pipe(nlp.pipe_names), **{n: pipe([n]) for n in nlp.pipe_names}}
    seconds = take_turns(arms, turns)
    return {name: n_words / statistics.median(s) for name, s in seconds.items()}


def profile(nlp: Language, rows: List[Any], turns: int) -> Dict[str, float]:
    """Microseconds per word, by part."""
    n_words = sum(map(len, rows))
    runs: List[Dict[str, float]] = []
    with instrumented(nlp) as clock:
        for _ in range(1 + turns):
            docs = make_docs(nlp, rows)
            clock.seconds = {}
            with clock.part("nlp.pipe"):
                list(nlp.pipe(docs))
            runs.append(clock.seconds)
    found = {
        part: 1e6 * statistics.median(run[part] for run in runs[1:]) / n_words
        for part in runs[-1]
    }
    share = share_of_products(nlp, make_docs(nlp, rows))
    lstms = found.pop("LSTMs")
    found["LSTMs: products"] = share * lstms
    found["LSTMs: gates and state"] = (1 - share) * lstms
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def share_of_products(nlp: Language, docs: List[Doc]) -> float:
    """Of what torch does within the LSTM layers."""
    elmo: Any = nlp.get_pipe("elmo")
    forward = lstm.LSTMLayer.forward

    def marked(*args: Any, **kwargs: Any) -> Any:
        with torch.profiler.record_function("lstm"):
            return forward(*args, **kwargs)

    lstm.LSTMLayer.forward = marked  # type: ignore[method-assign]
    activities = [torch.profiler.ProfilerActivity.CPU]
    try:
        with torch.profiler.profile(activities=activities) as found:
            elmo.predict(docs)
    finally:
        lstm.LSTMLayer.forward = forward  # type: ignore[method-assign]
    products = others = 0.0
    for event in found.events():
        parent = event.cpu_parent
        while parent is not None and parent.name != "lstm":
            parent = parent.cpu_parent
        if parent is not None:
            if event.name in PRODUCTS:
                products += event.self_cpu_time_total
            else:
                others += event.self_cpu_time_total
    return products / (products + others)


class Clock:
    """Each part's own time: a part's clock stops while one within it runs."""

    def __init__(self) -> None:
        self.seconds: Dict[str, float] = {}
        self.running: List[str] = []
        self.since = 0.0

    def _switch(self) -> None:
        now = time.perf_counter()
        if self.running:
            part = self.running[-1]
            self.seconds[part] = self.seconds.get(part, 0.0) + now - self.since
        self.since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._switch()
        self.running.append(name)
        try:
            yield
        finally:
            self._switch()
            self.running.pop()
            self.since = time.perf_counter()

    def timing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed_function(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return function(*args, **kwargs)

        return timed_function


class TimedComponent:
    """A component in whose name time passes: that of parsers cannot be patched."""

    def __init__(self, clock: Clock, part: str, component: Any):
        self.clock, self.part, self.component = clock, part, component

    def pipe(self, docs: Iterator[Doc], **kwargs: Any) -> Iterator[Doc]:
        found = iter(self.component.pipe(docs, **kwargs))
        while True:
            with self.clock.part(self.part):
                doc = next(found, None)
            if doc is None:
                return
            yield doc


@contextmanager
def instrumented(nlp: Language) -> Iterator[Clock]:
    """A clock for the parts of a pipeline."""
    clock = Clock()
    undo = []

    def replace(owner: Any, name: str, part: str, as_list: bool = False) -> None:
        original = getattr(owner, name)
        # A generator works while its caller's clock runs.
        function = (lambda *a, **k: list(original(*a, **k))) if as_list else original
        setattr(owner, name, clock.timing(part, function))
        undo.append((owner, name, original))

    replace(doc_encoder, "read_sentences", "reading Docs and cutting sentences")
    replace(WordCache, "lookup", "word table")
    replace(BiLM, "encode_words", "characters of new words")
    replace(model, "make_batches", "assembling batches", as_list=True)
    replace(BiLM, "forward", "gathering the layers of a batch")
    replace(lstm.LSTMLayer, "forward", "LSTMs")
    replace(BiLM, "encode_ids", "splitting batches into sentences")
    replace(doc_encoder, "forward", "scatter into Docs")
    for name, pipe in nlp.pipeline:
        root: Any = pipe.model  # type: ignore[attr-defined]
        for node in root.walk():
            part = LAYERS.get(node.name, f"other layers of {name}")
            if node.name == "elmo-bilm":
                part = "scatter into Docs"
            replace(node, "_func", part)
    undo.append((nlp, "_components", nlp._components))
    nlp._components = [
        (name, TimedComponent(clock, f"rest of {name}", pipe))
        for name, pipe in nlp._components
    ]
    try:
        yield clock
    finally:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)


def latency(nlp: Language, rows: List[Any]) -> Dict[str, float]:
    """Milliseconds of nlp(text) with a sentence of ten words."""
    # A toy text may have no sentence so long.
    sentences = ([s for s in rows if len(s) == LATENCY_WORDS] or rows)[:50]
    texts = [" ".join(row[1] for row in sentence) for sentence in sentences]
    arms = {}
    for names in (["elmo"], nlp.pipe_names):
        with nlp.select_pipes(enable=names):
            times = [timed(lambda: nlp(text))() for text in texts * 2]  # noqa: B023
        arms[", ".join(names)] = 1e3 * statistics.median(times[len(texts) :])
    return arms


def render(results: Dict[str, Any]) -> str:
    words = [(name, float(n)) for name, n in results["words/s"].items()]
    parts = results["microseconds per word"]
    total = sum(parts.values())
    shares = [(part, us, 100 * us / total) for part, us in parts.items()]
    latencies = [
        (k, float(ms)) for k, ms in results["milliseconds per sentence"].items()
    ]
    return "\n".join(
        [
            f"{results['machine']}; {results['weights']} in {results['precision']}\n",
            table(["", "words/s"], words, ",.0f"),
            table(["part", "µs per word", "%"], shares, ".1f"),
            table([f"sentence of {LATENCY_WORDS} words", "ms"], latencies, ".2f"),
        ]
    )


if __name__ == "__main__":
    main()
