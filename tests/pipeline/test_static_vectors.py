import numpy as np
import pytest

from spacy_elmo.pipeline.static_vectors import add_words, average_contexts

TEXTS = ["She made a play .", "a play of a\n day", "They play a game ."]


@pytest.fixture
def batches(nlp):
    docs = [nlp.make_doc(text) for text in TEXTS]
    return [docs[:2], docs[2:]]


def means(nlp, layer):
    """Word -> the mean of its vectors, by the words' order of frequency."""
    found = {}
    for doc in nlp.pipe(TEXTS):
        for token in doc:
            if not token.is_space:
                found.setdefault(token.text, []).append(token._.elmo[layer])
    ranked = sorted(found, key=lambda word: -len(found[word]))
    return {word: np.mean(found[word], axis=0) for word in ranked}


@pytest.mark.parametrize("layer", ["top", 1, 0])
def test_a_word_has_the_mean_of_its_contextual_vectors(nlp, batches, layer):
    wanted = means(nlp, -1 if layer == "top" else layer)
    words, vectors = average_contexts(nlp.get_pipe("elmo"), batches, layer=layer)
    assert words == list(wanted)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, list(wanted.values()), atol=1e-5)


def test_the_most_frequent_words_are_kept(nlp, batches):
    elmo = nlp.get_pipe("elmo")
    assert average_contexts(elmo, batches, max_words=3)[0] == ["a", "play", "."]
    assert average_contexts(elmo, batches, min_count=3)[0] == ["a", "play"]
    kept = average_contexts(elmo, batches, max_words=1, keep=["game", "no", "She"])
    wanted = means(nlp, -1)
    assert kept[0] == ["a", "She", "game"]
    np.testing.assert_allclose(kept[1], [wanted[w] for w in kept[0]], atol=1e-5)
    words, vectors = average_contexts(elmo, [])
    assert words == [] and vectors.shape == (0, 12)


def test_rare_words_are_forgotten_on_the_way(nlp):
    """However many distinct words there are, what is kept is bounded; and the frequent
    ones lose nothing."""
    elmo = nlp.get_pipe("elmo")
    texts = [f"the word{i} of number{i} ." for i in range(100)]
    batches = [[nlp.make_doc(text)] for text in texts]
    words, vectors = average_contexts(elmo, batches, max_words=3)
    assert sorted(words) == [".", "of", "the"]
    all_words, whole = average_contexts(elmo, batches, max_words=1000)
    rows = [all_words.index(word) for word in words]
    np.testing.assert_allclose(vectors, whole[rows], atol=1e-6)


def test_one_known_word_tells_no_more_than_its_vector(nlp):
    elmo = nlp.get_pipe("elmo")
    elmo.model.initialize()
    _, vectors = add_words(elmo, ["play"], np.ones((1, 12), "f"), ["game", "day"])
    np.testing.assert_allclose(vectors, np.ones((3, 12)))


def test_words_that_the_text_lacks_are_predicted_from_the_token_layer(nlp):
    elmo = nlp.get_pipe("elmo")
    elmo.model.initialize()
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(200)]
    new = ["number1", "word7", "number2", "number1", "New York", "\n"]
    doc = nlp(" ".join([*words, "number1", "number2"]))
    # A made-up map from the token layer, which least squares must find again.
    W = rng.standard_normal((6, 12)).astype("f")
    vectors = doc._.elmo[:, 0, :6] @ W + 1
    all_words, found = add_words(elmo, words, vectors[:200], new)
    assert all_words == [*words, "number1", "number2"]
    np.testing.assert_array_equal(found[:200], vectors[:200])
    wanted, predicted = vectors[200:], found[200:]
    error = np.linalg.norm(predicted - wanted) / np.linalg.norm(wanted)
    assert error < 0.1
