import numpy as np
import pytest

from spacy_elmo.pretraining.config import OptimizerSettings
from spacy_elmo.pretraining.corpus import load_corpora
from spacy_elmo.pretraining.language_model import log_likelihoods
from spacy_elmo.pretraining.run import learn_rate, start_run
from spacy_elmo.pretraining.softmax import draw_sample
from spacy_elmo.pretraining.vocabulary import EOS_ID


@pytest.mark.parametrize("state", ["zero", "carried"])
def test_a_window_sees_what_the_windows_before_it_left(make_settings, tmp_path, state):
    """The loss of two short windows is that of a long one, in either state: what is
    carried is all that the second needs, and "zero" forgets it at each sentence."""
    settings = make_settings(state=state, dropout=0.0)
    corpus, _ = load_corpora(settings, tmp_path / "out")

    def mean_loss(unroll_steps, n):
        settings = make_settings(state=state, dropout=0.0, unroll_steps=unroll_steps)
        run = start_run(settings, corpus)
        words = draw_sample(None, corpus.vocab_size, corpus.vocab_size)
        carried, found = run.state, []
        for _ in range(n):
            loss, carried = run.objective(run.rows.read(), carried, words)
            found.append(loss.item())
        return np.mean(found)

    assert abs(mean_loss(5, 8) - mean_loss(40, 1)) < 1e-6


def test_a_carried_state_crosses_the_ends_of_sentences(make_settings, tmp_path):
    """The first window of each row has the loss of the beginning of its document by
    `log_likelihoods`, which reads on from sentence to sentence."""
    settings = make_settings(state="carried", dropout=0.0)
    corpus, _ = load_corpora(settings, tmp_path / "out")
    run, n = start_run(settings, corpus), settings.training.unroll_steps
    first = corpus.epoch(0, settings.training.seed)[: settings.training.rows]
    documents = [corpus.document(i) for i in first]
    assert all(EOS_ID in document[: n - 1] for document in documents)
    words = draw_sample(None, corpus.vocab_size, corpus.vocab_size)
    found, _ = run.objective(run.rows.read(), run.state, words)
    nats = log_likelihoods(run.bilm, run.softmax, documents, corpus.words)
    wanted = -np.mean([of_document[:, :n] for of_document in nats])
    assert found.item() == pytest.approx(wanted, abs=1e-5)


def test_the_learning_rate_warms_up_and_decays():
    settings = {"learn_rate": 1.0, "warmup_steps": 4}
    cosine, linear, flat = (
        OptimizerSettings(decay=decay, **settings)
        for decay in ("cosine", "linear", "none")
    )
    assert [learn_rate(cosine, k, 12) for k in range(4)] == [0.25, 0.5, 0.75, 1]
    assert learn_rate(cosine, 8, 12) == pytest.approx(0.5)
    assert learn_rate(linear, 10, 12) == pytest.approx(0.25)
    assert learn_rate(flat, 11, 12) == 1
    # Over the last quarter only
    late = OptimizerSettings(decay="linear", decay_share=0.25, **settings)
    assert [learn_rate(late, k, 16) for k in (4, 12)] == [1, 1]
    assert learn_rate(late, 14, 16) == pytest.approx(0.5)
