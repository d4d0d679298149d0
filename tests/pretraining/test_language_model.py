import math
import subprocess
import sys

import made_up
import numpy as np
import pytest
import spacy
import torch

from spacy_elmo import LanguageModel
from spacy_elmo.bilm import BiLM, Options
from spacy_elmo.errors import CorpusError, WeightsError
from spacy_elmo.pretraining.evaluation import evaluate_files
from spacy_elmo.pretraining.initialization import initialize
from spacy_elmo.pretraining.language_model import write_model
from spacy_elmo.pretraining.softmax import Softmax
from spacy_elmo.pretraining.vocabulary import SPECIAL, write_vocabulary

VOCABULARY = [*SPECIAL, ".", *sorted(set(" ".join(made_up.FACTS).split()))]
SENTENCES = [f"{fact} .".split() for fact in made_up.FACTS]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    bilm = initialize(BiLM(Options.from_dict(made_up.TINY_MODEL)), seed=0)
    for name, param in bilm.named_parameters():
        if "projection" in name:
            param.data.mul_(3)  # else it would hardly tell contexts apart
    softmax = Softmax(len(VOCABULARY), 12).initialize(1)
    softmax.weight.data.mul_(3)
    softmax.bias.data.normal_()
    directory = tmp_path_factory.mktemp("language") / "model"
    write_model(bilm, softmax, directory)
    write_vocabulary(directory / "vocab.txt", VOCABULARY)
    return directory


@pytest.fixture(scope="module")
def model(weights):
    return LanguageModel.from_path(weights)


def test_what_scores_loads_nothing_of_training():
    code = "import sys, spacy_elmo.pretraining.language_model; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("pretraining.corpus", "pretraining.tokenizer", "text"):
        assert f"spacy_elmo.{name}" not in found.split()


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


@pytest.fixture(scope="module")
def log_p(model):
    """log_p(sentence, i) -> ln p of every word at i, given what is before and given
    what is after, by NumPy from `encode` and the tables of the softmax."""
    W, b = (x.numpy() for x in (model.softmax.weight, model.softmax.bias))

    def compute(sentence, i):
        (layers,), _ = model.bilm.encode([sentence])
        before, after = layers[i - 1, -1, :12], layers[i + 1, -1, 12:]
        return log_softmax(W @ before + b), log_softmax(W @ after + b)

    return compute


def test_surprisals_are_those_of_the_exact_softmax(model, log_p):
    for sentence, found in zip(SENTENCES, model.score(SENTENCES)):
        assert found.shape == (len(sentence), 2)
        for i in range(1, len(sentence) - 1):
            k = VOCABULARY.index(sentence[i])
            wanted = [-x[k] / math.log(2) for x in log_p(sentence, i)]
            np.testing.assert_allclose(found[i], wanted, rtol=1e-4, atol=1e-4)


def test_the_sums_over_a_text_are_the_loss_of_evaluate(model, make_corpus):
    text = made_up.text(8) + "\nan unknown dog barks .\n"
    corpus = make_corpus(text, vocabulary=VOCABULARY)
    wanted = evaluate_files(model.bilm, model.softmax, {"text": corpus}, state="zero")
    sentences = [line.split() for line in text.splitlines() if line]
    scores = model.score(sentences, boundaries=True)
    nats = sum(score.sum(axis=0) for score in scores) * math.log(2)
    n_tokens = sum(len(sentence) + 1 for sentence in sentences)
    assert n_tokens == wanted.n_tokens
    found = np.exp(nats / n_tokens)
    np.testing.assert_allclose(found, [wanted.forward, wanted.backward], rtol=1e-5)


def test_boundaries_have_rows_of_their_own(model):
    (inside,), (whole,) = (
        model.score(SENTENCES[:1], boundaries=boundaries)
        for boundaries in (False, True)
    )
    np.testing.assert_array_equal(whole[1:-1], inside)
    assert whole[0, 0] == 0 and whole[-1, 1] == 0
    assert whole[0, 1] > 0 and whole[-1, 0] > 0


def test_a_sentence_has_the_same_score_in_any_batch(model):
    together = model.score(SENTENCES)
    for sentence, wanted in zip(SENTENCES[::-1], together[::-1]):
        np.testing.assert_allclose(model.score([sentence])[0], wanted, atol=1e-4)


def test_short_and_long_sentences(model):
    long = SENTENCES[0] * 300
    empty, one, found = model.score([[], ["dog"], long])
    assert empty.shape == (0, 2) and one.shape == (1, 2)
    assert found.shape == (len(long), 2) and np.isfinite(found).all()
    # Far from both ends, what comes round again is read as before.
    period = len(SENTENCES[0])
    np.testing.assert_allclose(
        found[1000 : 1000 + period], found[1000 + period : 1000 + 2 * period], atol=1e-3
    )
    assert model.score([]) == []


def test_words_outside_the_vocabulary_count_as_unknown(model):
    words = ["the", "<UNK>", "</S>", "qwertzu"]
    assert [model.is_oov(word) for word in words] == [False, True, True, True]
    (found,) = model.score([["the", "qwertzu"]])
    (layers,), _ = model.bilm.encode([["the", "qwertzu"]])
    W, b = (x.numpy() for x in (model.softmax.weight, model.softmax.bias))
    wanted = -log_softmax(W @ layers[0, -1, :12] + b)[2] / math.log(2)
    assert found[1, 0] == pytest.approx(wanted, rel=1e-4)
    # Special words of a text are no boundaries.
    np.testing.assert_array_equal(*(model.score([[w]])[0] for w in words[1:3]))


def test_substitutes_are_by_both_directions(model, log_p):
    sentence, i = SENTENCES[0], 2
    found = model.substitutes(sentence, i, n=5)
    before, after = log_p(sentence, i)
    rank = np.arange(len(VOCABULARY))
    joint = before + after - np.log(np.log((rank + 2) / (rank + 1)))
    joint[:3] = -np.inf
    joint = log_softmax(joint)
    best = np.argsort(-joint)[:5]
    assert [word for word, _ in found] == [VOCABULARY[k] for k in best]
    np.testing.assert_allclose([p for _, p in found], joint[best], atol=1e-4)


def test_substitutes_are_all_of_the_vocabulary_but_the_special_words(model):
    found = model.substitutes(["dog"], -1, n=10_000)
    assert {word for word, _ in found} == set(VOCABULARY) - set(SPECIAL)
    assert sum(math.exp(p) for _, p in found) == pytest.approx(1)
    for i in (1, -2):
        with pytest.raises(IndexError, match=f"ELMO038.*in the 1 words, not {i}"):
            model.substitutes(["dog"], i)
    for n in (-1, 2.0):
        with pytest.raises(ValueError, match=f"ELMO038.*n must be .*words, not {n}"):
            model.substitutes(["dog"], 0, n)
    assert len(model.substitutes(["dog"], 0, np.int64(2))) == 2


def test_autocast_changes_nothing(model):
    sentence = SENTENCES[0]
    (wanted,), likely = model.score([sentence]), model.substitutes(sentence, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(model.score([sentence])[0], wanted)
        assert model.substitutes(sentence, 1) == likely


def test_a_sentence_is_a_list_of_strings(model):
    doc = spacy.blank("en")("The dog barks.")
    for sentence, what in (("dog", "a string"), (doc, "of words that are a Token")):
        with pytest.raises(ValueError, match=f"ELMO022.*is {what}"):
            model.score([sentence])
        with pytest.raises(ValueError, match=f"ELMO022.*is {what}"):
            model.substitutes(sentence, 0)


def test_iterators_are_read_once(model):
    (wanted,) = model.score([["the", "dog"]])
    (found,) = model.score(iter([iter(["the", "dog"])]))
    np.testing.assert_array_equal(found, wanted)


def test_weights_without_a_softmax_say_so(tiny_weights):
    with pytest.raises(WeightsError, match="ELMO054.*no softmax"):
        LanguageModel.from_path(tiny_weights)


def test_the_vocabulary_must_be_that_of_the_softmax(weights, tmp_path):
    other = tmp_path / "vocab.txt"
    with pytest.raises(CorpusError, match="ELMO051.*vocab.txt: is not there"):
        LanguageModel.from_path(weights, vocab_path=other)
    write_vocabulary(other, VOCABULARY[:-1])
    with pytest.raises(CorpusError, match="ELMO051.*words, but the softmax"):
        LanguageModel.from_path(weights, vocab_path=str(other))


def test_the_bundled_model_by_its_name():
    model = LanguageModel.from_path("en_elmo_sm")
    good, bad = model.score(
        [f"The houses {verb} old .".split() for verb in ("are", "is")]
    )
    assert good[2, 0] < bad[2, 0] and good[1, 1] < bad[1, 1]
    words = [
        word for word, _ in model.substitutes("They live in the city .".split(), 1)
    ]
    assert "live" in words
