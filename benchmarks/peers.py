"""A peer in an environment of its own. It loads weights once and then runs batches, a
line of JSON for each request and each answer. `start_peer` runs

    python benchmarks/peers.py allennlp WEIGHTS THREADS
    python benchmarks/peers.py simple_elmo WEIGHTS THREADS
    python benchmarks/peers.py simple_elmo_training FOLDER THREADS

In the last one a batch is a step of its trainer, and FOLDER has options.json, vocab.txt
and text.txt (tokenized).
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, Callable, Dict, List, Tuple
from unittest.mock import MagicMock, patch

Sentences = List[List[str]]
Run = Callable[[Sentences], List[Any]]

MAX_BATCH = 256
# What to install for each, by calls of pip. Without its dependencies, AllenNLP 2.10.1
# still runs on a torch of today.
PEERS: Dict[str, List[List[str]]] = {
    "allennlp": [["torch==2.13.0", "numpy", "h5py"], ["--no-deps", "allennlp==2.10.1"]],
    "simple_elmo": [["simple_elmo", "tensorflow-cpu", "tf-keras"]],
}
# What AllenNLP's ELMo imports of AllenNLP beside its own modules.
PACKAGES = ["", ".common", ".data", ".data.token_indexers", ".modules", ".nn"]
MOCKS = [
    "common.file_utils", "common.util", "data.batch", "data.fields", "data.instance",
    "data.tokenizers", "data.tokenizers.token_class", "data.vocabulary",
    "data.token_indexers.token_indexer", "nn.initializers",
]  # fmt: skip


def start_peer(name: str, weights: Path, environments: Path, threads: int) -> Any:
    """The process of a peer, once it is ready. For `ask`."""
    python = make_environment(name.removesuffix("_training"), environments)
    return start(name, [python, __file__, name, str(weights), str(threads)])


def start(name: str, command: List[Any], **options: Any) -> Any:
    """A process that prints a line once it is ready, and one for each that it gets."""
    errors = TemporaryFile("w+")
    process = subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=errors, **options,
    )  # fmt: skip
    if not process.stdout.readline():
        errors.seek(0)
        raise SystemExit(f"{name} does not run:\n{errors.read()}")
    return process


def ask(process: Any, task: Dict[str, Any]) -> Dict[str, Any]:
    """Send a task ({"batches": ...}) and wait for its answer."""
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    return dict(json.loads(process.stdout.readline()))


def main() -> None:
    name, weights, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    # What libraries print must not come between the lines of JSON.
    answers, sys.stdout = sys.stdout, sys.stderr
    loaders = {
        "allennlp": load_allennlp,
        "simple_elmo": load_simple_elmo,
        "simple_elmo_training": load_simple_elmo_training,
    }
    run, fresh = loaders[name](weights, threads)
    print(json.dumps({"ready": name}), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        start = time.perf_counter()
        layers = [array for batch in task["batches"] for array in run(batch)]
        seconds = time.perf_counter() - start
        answer = {"seconds": seconds}
        if task.get("show"):
            # From the zero state: simple_elmo's is carried from batch to batch.
            layers = [a for batch in task["batches"] for a in fresh(batch)]
            answer["layers"] = [array.tolist() for array in layers]
        print(json.dumps(answer), file=answers, flush=True)


def make_environment(name: str, folder: Path) -> str:
    """The Python of a peer's environment, which is made if it is not there yet."""
    python = folder / name / "bin" / "python"
    if not python.is_file():
        unfinished = folder / f"{name}.unfinished"
        venv.create(unfinished, with_pip=True, clear=True)
        for packages in PEERS[name]:
            pip = [str(unfinished / "bin" / "python"), "-m", "pip", "install"]
            subprocess.run([*pip, *packages], check=True)
        unfinished.rename(folder / name)
    return str(python)


def load_allennlp(weights: Path, threads: int) -> Tuple[Run, Run]:
    """AllenNLP's own modules. Its LSTM state is reset before each batch: a sentence
    must not depend on the batch before.
    """
    import torch

    torch.set_num_threads(threads)
    found = importlib.util.find_spec("allennlp")
    assert found is not None and found.submodule_search_locations
    [root] = found.submodule_search_locations
    stubs: Any = {f"allennlp.{name}": MagicMock() for name in MOCKS}
    for name in PACKAGES:
        package = ModuleType(f"allennlp{name}")
        package.__path__ = [root + name.replace(".", "/")]
        stubs[package.__name__] = package
    stubs["allennlp.common"].FromParams = object
    stubs["allennlp.common.file_utils"].cached_path = lambda path: path
    with patch.dict(sys.modules, stubs):
        elmo = importlib.import_module("allennlp.modules.elmo")
        indexer = importlib.import_module("allennlp.data.token_indexers.elmo_indexer")
    to_ids = indexer.ELMoCharacterMapper({}).convert_word_to_char_ids
    bilm = elmo._ElmoBiLm(str(weights / "options.json"), str(weights / "weights.hdf5"))

    def run(batch: Sentences) -> List[Any]:
        ids = torch.zeros(len(batch), max(map(len, batch)), 50, dtype=torch.long)
        for row, words in zip(ids, batch):
            row[: len(words)] = torch.tensor([to_ids(word) for word in words])
        bilm._elmo_lstm.reset_states()
        with torch.no_grad():
            layers = torch.stack(bilm(ids)["activations"], dim=2).numpy()
        return [array[1 : len(s) + 1] for array, s in zip(layers, batch)]

    return run, run


def load_simple_elmo(weights: Path, threads: int) -> Tuple[Run, Run]:
    tf, session_config = load_tensorflow(threads)
    from simple_elmo import ElmoModel

    model = ElmoModel()
    model.load(str(weights), max_batch_size=MAX_BATCH)
    # Makes the graph. The session that it opens for each call costs seconds: one that
    # stays is the better way, which its interface has too.
    model.get_elmo_vectors([["a"]], warmup=False, layers="all")
    session = tf.compat.v1.Session(config=session_config)
    session.run(tf.compat.v1.global_variables_initializer())

    def run(batch: Sentences) -> List[Any]:
        model.batch_size = len(batch)
        layers = model.get_elmo_vectors(
            batch, warmup=False, layers="all", session=session
        )
        # (sentences, layers, words, width) -> as ours
        return [
            layers[i].transpose(1, 0, 2)[: len(words)] for i, words in enumerate(batch)
        ]

    def fresh(batch: Sentences) -> List[Any]:
        session.run(tf.compat.v1.global_variables_initializer())
        return run(batch)

    return run, fresh


def load_simple_elmo_training(folder: Path, threads: int) -> Tuple[Run, Run]:
    """The graph of its `train`, whose own loop cannot be timed step by step, on a
    text that its own reader reads.
    """
    tf, session_config = load_tensorflow(threads)
    from simple_elmo import data, training

    tf.compat.v1.disable_eager_execution()
    options = json.loads((folder / "options.json").read_text())
    optimizer = tf.compat.v1.train.AdagradOptimizer(
        learning_rate=0.2, initial_accumulator_value=1.0
    )
    with tf.compat.v1.variable_scope("lm"):
        model = training.LanguageModel(options, True)
        grads = optimizer.compute_gradients(
            model.total_loss * options["unroll_steps"],
            aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
        )
    grads = training.average_gradients([grads], options["batch_size"], options)
    grads, _ = training.clip_grads(grads, options, False, None)
    update = optimizer.apply_gradients(grads)
    session = tf.compat.v1.Session(config=session_config)
    session.run(tf.compat.v1.global_variables_initializer())
    vocabulary = training.load_vocab(
        str(folder / "vocab.txt"), options["char_cnn"]["max_characters_per_token"]
    )
    text = data.BidirectionalLMDataset(str(folder / "text.txt"), vocabulary)
    batches = text.iter_batches(options["batch_size"], options["unroll_steps"])
    states: List[Any] = []

    def run(_: Sentences) -> List[Any]:
        feed = training._get_feed_dict_from_x(
            next(batches), 0, options["batch_size"], model, True, True
        )
        feed.update(zip(model.init_lstm_state, states))
        _, *states[:] = session.run([update, *model.final_lstm_state], feed_dict=feed)
        return []

    return run, run


def load_tensorflow(threads: int) -> Tuple[Any, Any]:
    """TensorFlow, and what a session needs to run on so many threads."""
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    return tf, tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1
    )


if __name__ == "__main__":
    main()
