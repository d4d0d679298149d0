import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.options import Options
from spacy_elmo.layers.caches import WordCache

BYTES = 4 * 6  # of a word


@pytest.fixture
def bilm(tiny_weights):
    return BiLM.from_path(tiny_weights)


@pytest.fixture
def encoded(monkeypatch):
    """The words that the encoder is given, call after call."""
    calls, encode_words = [], BiLM.encode_words

    def count(self, words):
        calls.append(list(words))
        return encode_words(self, words)

    monkeypatch.setattr(BiLM, "encode_words", count)
    return calls


def test_each_word_is_encoded_once(bilm, encoded):
    cache = WordCache(100 * BYTES)
    first = cache.lookup(bilm, ["a", "play"])
    again = cache.lookup(bilm, ["play", "new", "a"])
    assert encoded == [["a", "play"], ["new"]]
    assert torch.equal(again[[2, 0]], first)
    torch.testing.assert_close(again, bilm.encode_words(["play", "new", "a"]))


@pytest.mark.parametrize("n_words", [0, 1, 3, 8])
def test_it_is_bounded_and_right_when_it_overflows(n_words, bilm):
    cache = WordCache(n_words * BYTES)
    sizes = set()
    for i in range(20):
        words = [f"word{n}" for n in range(i, i + 1 + i % 5)]
        wanted = bilm.encode_words(words)
        torch.testing.assert_close(cache.lookup(bilm, words), wanted)
        sizes.add(len(cache))
    assert max(sizes) <= n_words
    assert bool(n_words) == bool(max(sizes))


def test_a_large_cache_takes_memory_as_it_fills(bilm):
    cache = WordCache(1 << 60)
    words = [f"word{n}" for n in range(100)]
    for n in (1, 2, 50, 100):
        found = cache.lookup(bilm, words[:n])
        torch.testing.assert_close(found, bilm.encode_words(words[:n]))
    assert len(cache) == 100 and len(cache._table) <= 200


@pytest.mark.parametrize("max_characters", [3, 4, 5])
def test_boundaries_are_no_words_in_the_narrowest_window(make_options, max_characters):
    options = make_options(max_characters_per_token=max_characters)
    options["char_cnn"]["filters"] = [[1, 4], [2, 4]]
    bilm = BiLM(Options.from_dict(options))
    for param in bilm.parameters():
        torch.nn.init.normal_(param)
    words = ["<S>", "</S>", "<abc", "</xyz", "<", "</"]
    found = WordCache(100 * BYTES).lookup(bilm, words)
    torch.testing.assert_close(found, bilm.encode_words(words))


def test_of_a_long_word_only_what_is_read_is_kept(bilm, encoded):
    cache, width = WordCache(100 * BYTES), bilm.options.char_cnn
    n = width.max_characters_per_token
    words = [i * "€" + n * "x" + 10_000 * str(i) for i in range(5)]
    found = cache.lookup(bilm, words)
    torch.testing.assert_close(found, bilm.encode_words(words))
    assert sum(map(len, cache._rows)) <= 5 * n
    encoded.clear()
    again = cache.lookup(bilm, [word + "y" for word in words])
    assert torch.equal(again, found) and not encoded


def test_what_inference_mode_has_kept_can_be_added_to(bilm):
    cache = WordCache(100 * BYTES)
    with torch.inference_mode():
        cache.lookup(bilm, ["a", "play"])
    found = cache.lookup(bilm, ["play", "new"])
    torch.testing.assert_close(found, bilm.encode_words(["play", "new"]))


def test_no_words_are_no_error(bilm):
    assert WordCache(0).lookup(bilm, []).shape[0] == 0
