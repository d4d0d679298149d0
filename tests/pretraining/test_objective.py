import numpy as np
import pytest
import torch

from spacy_elmo.pretraining.corpus import load_corpora
from spacy_elmo.pretraining.distributed import Processes
from spacy_elmo.pretraining.objective import WindowReader
from spacy_elmo.pretraining.run import start_run, train_step
from spacy_elmo.pretraining.softmax import draw_sample
from spacy_elmo.pretraining.vocabulary import BOS_ID


def test_a_window_is_read_as_its_sentences_are(make_settings, tmp_path):
    """By `encode`, which reads each sentence alone, as the plugin does."""
    settings = make_settings(state="zero", dropout=0.0, rows=3, unroll_steps=40)
    corpus, _ = load_corpora(settings, tmp_path / "out")
    run = start_run(settings, corpus)
    batch, read = run.rows.read(), []
    run.objective.reader.register_forward_hook(lambda *found: read.append(found[2]))
    sample = draw_sample(np.random.default_rng(0), 8, corpus.vocab_size)
    run.objective(batch, run.state, sample)
    ((h, *after),), inputs = read, batch.inputs
    forward, backward = h.detach().numpy().reshape(2, 40, 3, -1)
    n_read = 0
    for r in range(3):
        ends = np.flatnonzero(inputs[0, :, r] == BOS_ID)
        for start, end in zip(ends, ends[1:]):
            words = [corpus.words[i] for i in inputs[0, start + 1 : end, r]]
            wanted = np.split(run.bilm.encode([words])[0][0][:, -1], 2, axis=1)
            here = slice(start + 1, end), r
            np.testing.assert_allclose(forward[here], wanted[0], atol=1e-5)
            # Backward reads </S> and then the last word.
            np.testing.assert_allclose(backward[here][::-1], wanted[1], atol=1e-5)
            n_read += 1
    assert n_read > 10
    assert [x.shape for x in after] == [(2, 2, 3, 12), (2, 2, 3, 32)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_recorded_windows_train_like_others(
    make_settings, tmp_path, monkeypatch, precision
):
    settings = make_settings(dropout=0.0, precision=precision)
    corpus, _ = load_corpora(settings, tmp_path / "out")
    found = []
    for record in (WindowReader.record, lambda self: None):
        monkeypatch.setattr(WindowReader, "record", record)
        run = start_run(settings, corpus, Processes(device=torch.device("cuda:0")))
        found.append([train_step(run, run.rows.read()) for _ in range(8)])
    np.testing.assert_allclose(*found, rtol=1e-4 if precision == "float32" else 0.02)
