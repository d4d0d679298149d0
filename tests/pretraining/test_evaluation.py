import h5py
import made_up
import numpy as np
import pytest
import torch
from reference import cell_name, lstm_layer, token_vector

from spacy_elmo.bilm import BiLM, Options
from spacy_elmo.errors import WeightsError
from spacy_elmo.pretraining import evaluation, language_model
from spacy_elmo.pretraining.evaluation import evaluate_files
from spacy_elmo.pretraining.initialization import initialize
from spacy_elmo.pretraining.language_model import read_softmax, write_model
from spacy_elmo.pretraining.softmax import Softmax

TEXT = "\n".join(["one", *made_up.text(12).splitlines(), "", "rare words only", ""])


@pytest.fixture(scope="module")
def bilm():
    bilm = initialize(BiLM(Options.from_dict(made_up.TINY_MODEL)), seed=0)
    for name, param in bilm.named_parameters():
        if "projection" in name:
            param.data.mul_(3)  # else it would hardly tell contexts apart
    return bilm


@pytest.fixture
def corpus(make_corpus):
    return make_corpus(TEXT, min_count=2)


@pytest.fixture
def softmax(corpus):
    softmax = Softmax(corpus.vocab_size, 12).initialize(1)
    softmax.weight.data.mul_(3)
    return softmax


def read_arrays(directory):
    arrays = {}

    def read(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()].astype("float64")

    with h5py.File(directory / "weights.hdf5") as h5:
        h5.visititems(read)
    return arrays


def slow_nats(arrays, vocabulary, direction, carried):
    """Nats of every prediction over TEXT: one word after the other, in float64."""
    options = made_up.TINY_MODEL
    first, last = ("<S>", "</S>") if direction == 0 else ("</S>", "<S>")
    zeros = [(np.zeros(32), np.zeros(12)) for _ in range(2)]
    nats = []
    for document in TEXT.strip().split("\n\n"):
        state = list(zeros)
        for line in document.splitlines():
            words = line.split()[:: 1 if direction == 0 else -1]
            state = state if carried else list(zeros)
            x = np.stack([token_vector(options, arrays, w) for w in [first, *words]])
            for layer in range(2):
                cell = cell_name(direction, layer)
                y, c, h = lstm_layer(options, arrays, cell, x, *state[layer])
                state[layer] = c, h
                x = y + x if layer else y
            logits = x @ arrays["softmax/W"].T + arrays["softmax/b"]
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            for row, word in zip(log_p, [*words, last]):
                known = word if word in vocabulary else "<UNK>"
                nats.append(-row[vocabulary.index(known)])
    return np.array(nats)


@pytest.mark.parametrize("small", [False, True], ids=["one batch", "many batches"])
@pytest.mark.parametrize("state", ["zero", "carried"])
def test_perplexity_is_that_of_a_slow_computation(
    bilm, softmax, corpus, tmp_path, monkeypatch, state, small
):
    if small:
        monkeypatch.setattr(evaluation, "SORTED_TOKENS", 50)
        monkeypatch.setattr(language_model, "MAX_BATCH_TOKENS", 7)
    write_model(bilm, softmax, tmp_path / "model")
    arrays, vocabulary = read_arrays(tmp_path / "model"), corpus.words
    vocabulary = vocabulary[: corpus.vocab_size]
    wanted = [slow_nats(arrays, vocabulary, d, state == "carried") for d in range(2)]
    found = evaluate_files(bilm, softmax, {"text": corpus}, state=state)
    assert found.n_tokens == len(wanted[0]) == len(corpus.tokens)
    assert found.forward == pytest.approx(np.exp(wanted[0].mean()), rel=1e-5)
    assert found.backward == pytest.approx(np.exp(wanted[1].mean()), rel=1e-5)
    assert found.average == pytest.approx((found.forward + found.backward) / 2)
    words = TEXT.split()
    n_ends = len(corpus.tokens) - len(words)
    n_characters = sum(len(word) + 1 for word in words) + n_ends
    bits = (wanted[0].sum() + wanted[1].sum()) / 2 / np.log(2)
    assert found.bits_per_character == pytest.approx(bits / n_characters, rel=1e-5)
    assert found.n_unknown == sum(word not in vocabulary for word in words) > 0


def test_the_perplexity_of_a_run_that_diverged_is_infinite(bilm, softmax, corpus):
    with torch.no_grad():
        worst = Softmax(softmax.vocab_size, softmax.weight.shape[1])
        worst.weight.zero_()
        worst.bias[0] = 1e4  # <S>, which the forward direction never predicts
    found = evaluate_files(bilm, worst, {"text": corpus}, state="zero")
    assert found.forward == float("inf")


def test_a_part_of_the_text_is_spread_over_it(bilm, softmax, corpus):
    whole = evaluate_files(bilm, softmax, {"text": corpus}, state="zero")
    third = whole.n_tokens / 2.5  # a half would be more
    files = {"text": corpus}
    part = evaluate_files(bilm, softmax, files, state="zero", max_tokens=third)
    every_third = [corpus.document(i) for i in range(0, corpus.n_documents, 3)]
    assert part.n_tokens == sum(map(len, every_third)) < whole.n_tokens
    assert part.bits_per_character == pytest.approx(whole.bits_per_character, rel=0.3)


def test_files_have_together_the_perplexity_of_one_text(
    bilm, softmax, corpus, make_corpus
):
    given = {"vocabulary": corpus.words[: corpus.vocab_size]}
    parts = {
        "0": make_corpus(TEXT, name="a.txt", **given),
        "1": make_corpus("the dog sings\n", name="b.txt", **given),
    }
    whole = make_corpus(f"{TEXT}\nthe dog sings\n", name="c.txt", **given)
    wanted = evaluate_files(bilm, softmax, {"text": whole}, state="zero")
    found = evaluate_files(bilm, softmax, parts, state="zero")
    assert found[:7] == pytest.approx(wanted[:7], rel=1e-6)
    assert found.to_dict()["files"]["1"]["n_tokens"] == 4


def test_the_softmax_is_written_beside_the_bilm(bilm, softmax, tmp_path):
    for dtype, tolerance in (("float32", 0), ("float16", 2e-3)):
        write_model(bilm, softmax, tmp_path / dtype, dtype=dtype)
        read = read_softmax(tmp_path / dtype, 12)
        assert (read.weight - softmax.weight).abs().max() <= tolerance
        assert not read.weight.requires_grad


def test_a_model_without_its_softmax_is_an_error(bilm, softmax, tmp_path):
    write_model(bilm, softmax, tmp_path)
    with pytest.raises(WeightsError, match=r"ELMO008.*softmax/W.*\(\d+, 13\)"):
        read_softmax(tmp_path, 13)
    bilm.save(tmp_path)
    with pytest.raises(WeightsError, match="ELMO054"):
        read_softmax(tmp_path, 12)
