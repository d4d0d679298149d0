import numpy as np
import pytest
import torch

from spacy_elmo.bilm.encoder import CharacterEncoder
from spacy_elmo.bilm.lstm import LSTMLayer
from spacy_elmo.bilm.options import CharCNNOptions, EmbeddingOptions, LSTMOptions
from spacy_elmo.pretraining.muon import Muon, orthogonalize

RATE, DECAY, BETA = 0.01, 0.1, 0.9


def newton_schulz(X):
    """As Jordan et al. (2024) have it."""
    X = X / np.linalg.norm(X)
    for _ in range(5):
        gram = X @ X.T
        X = 3.4445 * X + (-4.7750 * gram + 2.0315 * gram @ gram) @ X
    return X


def test_matrices_become_nearly_orthogonal_and_keep_their_singular_vectors():
    rng = np.random.default_rng(0)
    Xs = rng.normal(size=(3, 12, 40)) * np.logspace(0, -1, 12)[:, None]
    found = orthogonalize([torch.tensor(X, dtype=torch.float32) for X in Xs])
    for X, Y in zip(Xs, found):
        np.testing.assert_allclose(Y, newton_schulz(X), atol=1e-4)
        U, S, Vt = np.linalg.svd(X, full_matrices=False)
        of_found = U.T @ Y.numpy() @ Vt.T
        np.testing.assert_allclose(of_found, np.diag(np.diag(of_found)), atol=1e-4)
        assert 0.6 < np.diag(of_found).min() < np.diag(of_found).max() < 1.3


def test_a_zero_gradient_moves_nothing():
    (found,) = orthogonalize([torch.zeros(4, 9)])
    assert not found.any()


def test_gates_and_projection_move_by_orthogonal_updates_and_biases_by_adamw():
    H, P = 10, 4
    layers = [_layer(H, P), _layer(H, P)]
    muon = Muon([{"params": layers[0].parameters()}], RATE, (BETA, 0.99),
                weight_decay=DECAY, weights=layers[0])  # fmt: skip
    adamw = torch.optim.AdamW(
        layers[1].parameters(), RATE, (BETA, 0.99), weight_decay=DECAY
    )
    kernel, projection = (p.detach().numpy().copy() for p in layers[0].parameters())
    momenta = np.zeros_like(kernel), np.zeros_like(projection)
    for step in range(3):
        gradients = []
        for layer in layers:
            torch.manual_seed(step)
            for param in layer.parameters():
                param.grad = torch.randn(param.shape)
            gradients = [p.grad.numpy().copy() for p in layer.parameters()]
        for momentum, gradient in zip(momenta, gradients):
            momentum[:] = BETA * momentum + (1 - BETA) * gradient
        ahead = [BETA * m + (1 - BETA) * g for m, g in zip(momenta, gradients)]
        scale = RATE * 0.2 * H**0.5
        for row in (1, 1 + P):
            for gate in range(4):
                block = np.s_[row : row + P, gate * H : (gate + 1) * H]
                update = newton_schulz(ahead[0][block])
                kernel[block] = (1 - RATE * DECAY) * kernel[block] - scale * update
        update = newton_schulz(ahead[1].T).T
        projection = (1 - RATE * DECAY) * projection - scale * update
        muon.step()
        adamw.step()
        found = [p.detach().numpy() for p in layers[0].parameters()]
        n = 4 * H
        np.testing.assert_allclose(found[0][1:, :n], kernel[1:, :n], atol=1e-5)
        np.testing.assert_allclose(found[1], projection, atol=1e-5)
        bias = layers[1].kernel.detach().numpy()[0, :n]
        np.testing.assert_allclose(found[0][0, :n], bias, atol=1e-6)


def test_a_layer_without_a_projection_and_other_parameters():
    layer, other = _layer(6, 6), torch.nn.Linear(3, 2)
    both = torch.nn.ModuleList([layer, other])
    muon = Muon([{"params": both.parameters()}], RATE, weights=both)
    before = [p.detach().clone() for p in both.parameters()]
    for param in both.parameters():
        param.grad = torch.randn(param.shape)
    muon.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, both.parameters()))
    # AdamW's first update is the learning rate.
    moved = (other.weight.detach() - before[1]) / RATE
    np.testing.assert_allclose(moved.abs(), 1.0, atol=0.02)


@pytest.mark.parametrize("width", [3, 30])
def test_the_projection_of_the_token_encoder(width):
    encoder = _encoder(width)
    muon = Muon([{"params": encoder.parameters()}], RATE, weights=encoder)
    torch.manual_seed(7)
    for param in encoder.parameters():
        param.data.normal_()
        param.grad = torch.randn_like(param)
    before = encoder.projection.weight.detach().numpy().copy()
    gradient = encoder.projection.weight.grad.numpy()
    muon.step()
    n = max(gradient.shape)
    moved = before * (1 - RATE * 0.01) - encoder.projection.weight.detach().numpy()
    update = newton_schulz(gradient)  # of any momentum that is as the first gradient
    np.testing.assert_allclose(moved / (RATE * 0.2 * n**0.5), update, atol=1e-3)


def test_a_token_encoder_without_a_projection():
    encoder = _encoder(width=10)
    assert Muon([{"params": encoder.parameters()}], RATE, weights=encoder).parts == []


def _encoder(width):
    options = CharCNNOptions(
        filters=((1, 4), (2, 6)), embedding=EmbeddingOptions(3), activation="relu"
    )
    return CharacterEncoder(options, width)


def _layer(H, P):
    layer = LSTMLayer(LSTMOptions(dim=H, projection_dim=P, n_layers=1))
    torch.manual_seed(5)
    with torch.no_grad():
        for param in layer.parameters():
            param.normal_()
    return layer
