import pytest
import torch
from torch.nn import functional as F

from spacy_elmo.bilm.characters import words_to_ids
from spacy_elmo.bilm.encoder import CharacterEncoder
from spacy_elmo.bilm.options import Options

WORDS = ["a", "aa", "tree", "trees", "seesaw", "reproducibility", "x" * 13, "y" * 48]


@pytest.fixture
def encoder(tiny_options):
    torch.manual_seed(0)
    encoder = CharacterEncoder(Options.from_dict(tiny_options).char_cnn, 6)
    for param in encoder.parameters():
        torch.nn.init.normal_(param, 0.0, 0.5)
    return encoder


def plain(encoder, ids):
    """The whole window through each convolution, for torch to differentiate."""
    embedded = F.embedding(ids.long(), encoder.char_embed).transpose(1, 2)
    pooled = [
        F.conv1d(embedded, weight, bias).amax(2)
        for weight, bias in zip(encoder.conv_weight, encoder.conv_bias)
    ]
    relu = encoder.options.activation == "relu"
    x = torch.cat(pooled, 1)
    x = torch.relu(x) if relu else torch.tanh(x)
    for highway in encoder.highways:
        x = highway(x)
    return x if encoder.projection is None else encoder.projection(x)


def test_vectors_and_gradients_are_those_of_plain_convolutions(encoder):
    width = encoder.options.max_characters_per_token
    ids = torch.from_numpy(words_to_ids(WORDS, width))
    d_out = torch.randn(len(WORDS), 6)
    found = []
    for run in (encoder, lambda ids: plain(encoder, ids)):
        encoder.zero_grad()
        out = run(ids)
        (out * d_out).sum().backward()
        gradients = {n: p.grad.clone() for n, p in encoder.named_parameters()}
        found.append((out.detach(), gradients))
    (mine, my_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
    for name, gradient in their_gradients.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(
            my_gradients[name], gradient, rtol=1e-4, atol=1e-5, msg=name
        )


def test_prediction_and_training_agree(encoder):
    width = encoder.options.max_characters_per_token
    ids = torch.from_numpy(words_to_ids(WORDS * 40, width))
    trained = encoder(ids).detach()
    with torch.no_grad():
        predicted = encoder(ids)
    torch.testing.assert_close(trained, predicted, rtol=0, atol=1e-5)
