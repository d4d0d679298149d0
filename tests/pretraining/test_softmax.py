import numpy as np
import pytest
import torch
from torch.nn import functional as F

from spacy_elmo.pretraining import softmax as softmax_module
from spacy_elmo.pretraining.softmax import Softmax, draw_sample

V, WIDTH, N = 300, 8, 70


@pytest.fixture
def problem():
    """A softmax, and outputs of a biLM with their targets, which repeat."""
    generator = torch.Generator().manual_seed(0)
    softmax = Softmax(V, WIDTH).initialize(0)
    with torch.no_grad():
        softmax.bias.normal_(generator=generator)
    h = torch.randn(N, WIDTH, generator=generator, requires_grad=True)
    return softmax, h, torch.randint(0, 40, (N,), generator=generator)


def every_word():
    return draw_sample(np.random.default_rng(0), V + 5, V)


def gradients(loss, softmax, h):
    return torch.autograd.grad(2.5 * loss, [h, softmax.weight, softmax.bias])


def assert_same(softmax, h, found, wanted, tolerance=1e-5):
    assert torch.allclose(found, wanted, rtol=tolerance)
    pairs = zip(gradients(found, softmax, h), gradients(wanted, softmax, h))
    for mine, theirs in pairs:
        assert torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance * 0.1)


def test_words_begin_as_likely_as_they_are_in_the_text():
    targets = np.random.default_rng(0).integers(0, 100, V).astype(float)
    softmax = Softmax(V, WIDTH).initialize(0, targets)
    found = softmax.log_likelihood(torch.zeros(V, WIDTH), torch.arange(V))
    wanted = (targets + 0.5) / (targets + 0.5).sum()
    np.testing.assert_allclose(found.exp(), wanted, rtol=1e-4)


@pytest.mark.parametrize("chunk", [256, 32, 1])
def test_full_loss_is_the_cross_entropy(problem, monkeypatch, chunk):
    softmax, h, targets = problem
    monkeypatch.setattr(softmax_module, "MAX_LOGITS", chunk * V)
    logits = h @ softmax.weight.T + softmax.bias
    wanted = F.cross_entropy(logits, targets)
    assert_same(softmax, h, softmax(h, targets, every_word()), wanted)
    exact = softmax.log_likelihood(h, targets)
    assert torch.allclose(exact, -F.cross_entropy(logits, targets, reduction="none"))


def plain_sampled_loss(softmax, h, targets, sample):
    """Jean et al. 2015, by autograd: the target and the negatives that are not it."""
    ids = sample.ids
    k = torch.arange(V).double()
    p = (torch.log(k + 2) - torch.log(k + 1)) / np.log(V + 1)
    log_expected = torch.log(1 - (1 - p) ** sample.n_tries).float()
    corrected = softmax.bias - log_expected
    true = (h * softmax.weight[targets]).sum(1) + corrected[targets]
    logits = h @ softmax.weight[ids].T + corrected[ids]
    logits = logits.masked_fill(ids[None] == targets[:, None], -torch.inf)
    logits = torch.cat([true[:, None], logits], dim=1)
    return F.cross_entropy(logits, torch.zeros(len(h), dtype=torch.int64))


@pytest.mark.parametrize("chunk", [256, 32])
def test_sampled_loss_and_gradients_are_those_of_autograd(problem, monkeypatch, chunk):
    softmax, h, targets = problem
    monkeypatch.setattr(softmax_module, "MAX_LOGITS", chunk * 50)
    sample = draw_sample(np.random.default_rng(0), 50, V)
    hits = torch.isin(targets, sample.ids)
    assert hits.any() and not hits.all()
    wanted = plain_sampled_loss(softmax, h, targets, sample)
    assert_same(softmax, h, softmax(h, targets, sample), wanted)


def test_sampled_loss_is_near_the_full_loss_on_average(problem):
    softmax, h, targets = problem
    rng = np.random.default_rng(0)
    full = softmax(h, targets, every_word()).item()

    def mean(n_samples):
        samples = [draw_sample(rng, n_samples, V) for _ in range(100)]
        return np.mean([softmax(h, targets, s).item() for s in samples])

    # Biased from below by the concavity of the log, ever less.
    errors = [full - mean(n) for n in (10, 50, 200)]
    assert errors[0] > errors[1] > errors[2] > -0.005
    assert errors[2] < 0.01


def test_negatives_are_distinct_and_as_frequent_as_expected():
    rng, n_draws, n_samples = np.random.default_rng(0), 3000, 40
    seen, expected = torch.zeros(V), torch.zeros(V)
    for _ in range(n_draws):
        sample = draw_sample(rng, n_samples, V)
        assert len(set(sample.ids.tolist())) == n_samples
        seen[sample.ids] += 1
        expected += sample.log_expected(torch.arange(V)).exp()
    # Four standard deviations of a share of 3,000 draws.
    assert ((seen - expected).abs() / n_draws).max() < 4 * 0.5 / n_draws**0.5


def test_the_sample_is_a_matter_of_the_seed_alone():
    first, second = (draw_sample(np.random.default_rng([3, 7]), 290, V) for _ in "ab")
    assert torch.equal(first.ids, second.ids) and first.n_tries == second.n_tries


def test_products_in_bfloat16_come_close(problem):
    softmax, h, targets = problem
    sample = draw_sample(np.random.default_rng(0), 50, V)
    wanted = softmax(h, targets, sample)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = softmax(h, targets, sample)
    assert abs(found.item() - wanted.item()) < 0.02
    pairs = zip(gradients(found, softmax, h), gradients(wanted, softmax, h))
    for mine, theirs in pairs:
        assert (mine - theirs).norm() < 0.02 * theirs.norm()
