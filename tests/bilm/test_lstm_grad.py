import math

import pytest
import torch

from spacy_elmo.bilm.batching import spans_of
from spacy_elmo.bilm.lstm_grad import (
    TrainedLSTM,
    cell_forward,
    rational_sigmoid,
    rational_tanh,
)

DIM, WIDTH = 5, 3


def trained_lstm(x, state, kernel, projection, sizes, keep, clips):
    how = tuple(sizes), keep, clips, torch.float32
    return TrainedLSTM.apply(x, *state, kernel, projection, how)


def plain_lstm(x, state, kernel, projection, sizes, keep, clips):
    """The equations one step after the other, for torch to differentiate."""
    cell_clip, proj_clip = clips
    h, c = map(list, state)
    bias, weight = kernel[0, : 4 * DIM], kernel[1:, : 4 * DIM]
    y = [None] * len(x)
    for start, end in spans_of(sizes):
        for row, token in enumerate(range(start, end)):
            k = 1.0 if keep is None else keep[token]
            pre = torch.cat([x[token], k * h[row]]) @ weight + bias
            i, f, o, j = pre.chunk(4)
            c_t = torch.sigmoid(f + 1) * k * c[row] + torch.sigmoid(i) * torch.tanh(j)
            c[row] = c_t.clamp(-cell_clip, cell_clip)
            m = torch.sigmoid(o) * torch.tanh(c[row])
            h_t = m if projection is None else m @ projection
            h[row] = h_t.clamp(-proj_clip, proj_clip)
            y[token] = h[row]
    return torch.stack(y), torch.stack(h), torch.stack(c)


@pytest.mark.parametrize("sizes", [[4, 4, 4], [4, 3, 3, 1]], ids=["rows", "packed"])
@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize(
    "clips", [(0.6, 0.3), (9.0, 9.0), (math.inf, math.inf)],
    ids=["clipped", "calm", "not clipped"],
)  # fmt: skip
@pytest.mark.parametrize("kept", [True, False])
def test_the_gradients_are_those_of_the_equations(sizes, projected, clips, kept):
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    n, width = sum(sizes), WIDTH if projected else DIM
    x, kernel = draw(n, width), draw(1 + 2 * width, 4 * DIM + 2)  # two of padding
    projection = draw(DIM, width) if projected else None
    state = 0.3 * draw(sizes[0], width), 0.3 * draw(sizes[0], DIM)
    keep = (draw(n, 1) > -0.5).float() if kept else None
    wanted = draw(n, width)
    found = []
    for run in (trained_lstm, plain_lstm):
        given = (x, kernel, projection) if projected else (x, kernel)
        params = [p.clone().requires_grad_() for p in given]
        weights = params[1], params[2] if projected else None
        out = run(params[0], state, *weights, sizes, keep, clips)
        (out[0] * wanted).sum().backward()
        found.append([t.detach() for t in out] + [p.grad for p in params])
    for mine, theirs in zip(*found):
        assert theirs.abs().max() > 0
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)


def test_a_second_backward_pass_is_refused_and_not_wrong():
    x = torch.randn(4, 3, requires_grad=True)
    y, _, _ = trained_lstm(
        x, (torch.zeros(2, 3), torch.zeros(2, 5)), torch.randn(7, 20),
        torch.randn(5, 3), [2, 2], None, (3.0, 3.0),
    )  # fmt: skip
    y.sum().backward(retain_graph=True)
    with pytest.raises((TypeError, RuntimeError)):
        y.sum().backward()


def test_the_compiled_functions_are_as_good_as_exact():
    x = torch.linspace(-12, 12, 20001)
    exact = torch.tanh(x.double()), torch.sigmoid(x.double())
    assert (rational_tanh(x) - exact[0]).abs().max() < 5e-7
    assert (rational_sigmoid(x) - exact[1]).abs().max() < 5e-7
    outs = []
    for functions in ((torch.sigmoid, torch.tanh), (rational_sigmoid, rational_tanh)):
        torch.manual_seed(0)
        gates, c = torch.randn(4, 20), torch.randn(4, 5)
        out = [gates, c, torch.empty(4, 5), torch.empty(4, 5)]
        keep = torch.ones(4, 1)
        cell_forward(gates.chunk(4, dim=1), c, keep, 3.0, *out[2:], *functions)
        outs.append(out)
    for mine, theirs in zip(*outs):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-6)
