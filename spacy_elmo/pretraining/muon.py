"""Muon (Jordan et al. 2024): the matrices of the LSTMs, and the token encoder's
projection, move by orthogonal updates."""

from math import sqrt
from typing import Any, Callable, Dict, List, Sequence, Union

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from ..bilm.encoder import CharacterEncoder
from ..bilm.lstm import LSTMLayer

# Of the Newton-Schulz iteration. Five steps bring singular values to some 0.7 to 1.2,
# but for the smallest; more bring them no nearer to 1.
A, B, C = 3.4445, -4.7750, 2.0315
N_ITERATIONS = 5
EPSILON = 1e-7
# Root mean square of an update, in learning rates: about what AdamW's have.
RMS = 0.2
Part = Union[LSTMLayer, CharacterEncoder]


class Muon(AdamW):
    """AdamW, but for the matrices of the LSTMs, W of each gate for x and for h and
    W_P, and for the token encoder's projection. These move by their orthogonalized
    momentum. torch.optim.Muon takes parameters as they are, but a kernel is the bias
    and the matrices of all gates.

    groups (List[Dict[str, Any]]): As AdamW's; the first has the matrices.
    weights (nn.Module): What has the LSTMs and the token encoder.
    """

    def __init__(
        self,
        groups: List[Dict[str, Any]],
        *args: Any,
        weights: nn.Module,
        **kwargs: Any,
    ) -> None:
        super().__init__(groups, *args, **kwargs)
        self.parts: List[Part] = [
            part
            for part in weights.modules()
            if isinstance(part, (LSTMLayer, CharacterEncoder)) and _matrices(part)
        ]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        before = [[W.clone() for W in _matrices(part)] for part in self.parts]
        loss = super().step(closure)
        group = self.param_groups[0]
        rate, beta = group["lr"], group["betas"][0]
        for part, Ws in zip(self.parts, before):
            gradients = _matrices(part, lambda p: p.grad)
            momenta = _matrices(part, lambda p: self.state[p]["exp_avg"])
            updates = orthogonalize(
                [torch.lerp(g, m, beta) for g, m in zip(gradients, momenta)]  # Nesterov
            )
            scale = rate * RMS * sqrt(Ws[0].shape[1])
            for now, W, update in zip(_matrices(part), Ws, updates):
                W.mul_(1 - rate * group["weight_decay"])
                now.copy_(W.sub_(update, alpha=scale))
        return loss


def orthogonalize(matrices: Sequence[Tensor]) -> List[Tensor]:
    """Nearly U V^T of each matrix U S V^T, by Newton-Schulz: in each step,
    X <- (a + b X X^T + c (X X^T)^2) X. The steps change X X^T alone, and X once, by
    their product. In bfloat16 that diverges: rounding leaves X X^T negative
    eigenvalues, and each step multiplies these by some a^2.

    matrices (Sequence[Floats2d]): (m, n) each, m <= n.
    """
    Xs = [X / (X.norm() + EPSILON) for X in matrices]
    gram = torch.stack([X @ X.t() for X in Xs])
    product = step = _step(gram)
    for _ in range(N_ITERATIONS - 1):
        gram = step @ gram @ step
        step = _step(gram)
        product = step @ product
    return [p @ X for p, X in zip(product, Xs)]


def _step(gram: Tensor) -> Tensor:
    step = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
    step.diagonal(dim1=1, dim2=2).add_(A)
    return step


def _matrices(
    part: Part, of: Callable[[Tensor], Any] = lambda param: param
) -> List[Tensor]:
    """Views of an LSTM's W_P and W of each gate, for x and for h, or of the token
    encoder's projection: (m, n) each, m <= n, of one shape.

    of (Callable[[Tensor], Tensor]): What of a parameter, for instance its gradient.
    """
    found = []
    if isinstance(part, LSTMLayer):
        H, P = part.options.dim, part.options.projection_dim
        W = of(part.kernel)[1:, : 4 * H]
        found = [gate for half in W.split(P) for gate in half.split(H, 1)]
        if part.projection is not None:
            found.append(of(part.projection).t())
    elif part.projection is not None:
        found = [of(part.projection.weight)]
    return [W if W.shape[0] <= W.shape[1] else W.t() for W in found]
