import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

# One process for both tests: to start it takes longer than they do.
SCRIPT = """
import multiprocessing, os, sys, threading, time
import numpy as np, spacy, torch
from spacy_elmo.bilm import BiLM

def add_elmo(nlp, **arguments):
    bilm = {"@architectures": "spacy_elmo.BiLM.v1", **arguments}
    return nlp.add_pipe("elmo", config={"model": bilm}).model.shims[0]

def check(docs, others):
    for doc, other in zip(docs, others):
        assert np.allclose(doc._.elmo, other._.elmo, rtol=1e-5, atol=1e-6)

def worker_processes(weights, method):
    # Torch has run in parallel before the workers start, as in any session of some
    # length: without care a forked child then waits forever.
    nlp = spacy.blank("xx")
    shim = add_elmo(nlp, weights=weights)
    listener = {"@architectures": "spacy_elmo.ELMoListener.v1"}
    tagger = nlp.add_pipe("tagger", config={"model": {"tok2vec": listener}})
    tagger.add_label("X")
    nlp.initialize()
    # So many new words that torch splits the work
    texts = [f"Play {i} she{i} made{i} {i}for {i}them." for i in range(300)]
    wanted = list(nlp.pipe(texts))
    torch.set_num_threads(2)
    for _ in range(3):
        torch.rand(500, 500) @ torch.rand(500, 500)
        torch.rand(2_000_000).exp_()
    multiprocessing.set_start_method(method, force=True)
    shim.word_cache.clear()
    docs = list(nlp.pipe(texts, n_process=2, batch_size=150))
    assert [doc.text for doc in docs] == texts
    check(docs, wanted)
    for doc in docs:
        assert doc[0].tag_ == "X"
        assert np.array_equal(doc[3]._.elmo, doc._.elmo[3])

def fork_at_work(weights, folder):
    # A thread of the parent is in the middle of its work in the moment of the fork,
    # with whatever it holds.
    nlp = spacy.blank("xx")
    shim = add_elmo(nlp, weights=weights, sentence_cache_path=folder)
    shim.open_sentence_cache()
    texts = [f"Play {i} of them." for i in range(20)]
    wanted = list(nlp.pipe(texts))
    parent, encode_words = os.getpid(), BiLM.encode_words
    at_work = threading.Event()

    def wait(self, words):
        if os.getpid() == parent:
            at_work.set()
            time.sleep(1)
        return encode_words(self, words)

    BiLM.encode_words = wait
    thread = threading.Thread(target=nlp, args=["Unheard words"])
    thread.start()
    at_work.wait()
    multiprocessing.set_start_method("fork", force=True)
    docs = list(nlp.pipe([*texts, "A new one."], n_process=2, batch_size=5))
    thread.join()
    check(docs, wanted)
    assert nlp("A new one.")._.elmo.any() and shim.sentence_cache.is_open

if __name__ == "__main__":
    weights, folder, *methods = sys.argv[1:]
    # Imports once what each of its workers needs.
    multiprocessing.set_forkserver_preload(["spacy", "torch", "spacy_elmo.bilm"])
    for method in methods:
        worker_processes(weights, method)
        print(method, flush=True)
    if "fork" in methods:
        fork_at_work(weights, folder)
        print("at work", flush=True)
"""
# What spawn does is what forkserver does: workers get the pipeline as bytes.
METHODS = sorted({"fork", "forkserver"} & {*multiprocessing.get_all_start_methods()})
METHODS = METHODS or ["spawn"]


@pytest.fixture(scope="module")
def printed(tiny_weights, tmp_path_factory):
    """What the script prints. It runs in a process group of its own, which may hang
    and be ended.
    """
    folder = tmp_path_factory.mktemp("processes")
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf8")
    arguments = [str(tiny_weights), str(folder / "cache"), *METHODS]
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        found, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the workers too
        found, errors = process.communicate()
        errors = f"it hangs: {errors}"
    return found.split("\n")[:-1], errors


@pytest.mark.parametrize("method", METHODS)
def test_worker_processes_give_the_same_vectors(printed, method):
    assert method in printed[0], printed[1]


@pytest.mark.skipif("fork" not in METHODS, reason="no fork on this system")
def test_a_forked_worker_waits_for_no_lock_of_its_parent(printed):
    assert "at work" in printed[0], printed[1]


def test_eight_threads_give_the_vectors_of_one(nlp):
    batches = [[f"Play {i} of {j} was good." for i in range(8)] for j in range(16)]
    wanted = [[doc._.elmo for doc in nlp.pipe(texts)] for texts in batches]
    nlp.get_pipe("elmo").model.shims[0].word_cache.clear()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda texts: list(nlp.pipe(texts)), batches))
    for docs, arrays in zip(found, wanted):
        for doc, X in zip(docs, arrays):
            np.testing.assert_allclose(doc._.elmo, X, rtol=1e-5, atol=1e-6)


def test_memory_zones_leave_nothing_behind(nlp):
    def size():
        return sum(1 for _ in nlp.vocab), len(nlp.vocab.strings)

    wanted = nlp("She made a play.")._.elmo
    sizes = [size()]
    for i in range(3):
        with nlp.memory_zone():
            docs = nlp.pipe([f"word{i}{j} made a play." for j in range(20)])
            assert all(np.isfinite(doc._.elmo).all() for doc in docs)
        sizes.append(size())
    assert len(set(sizes)) == 1
    np.testing.assert_allclose(
        nlp("She made a play.")._.elmo, wanted, rtol=1e-5, atol=1e-6
    )
