"""Muon (Jordan et al. 2024): the LSTMs' matrices move by orthogonal updates."""

from math import sqrt
from typing import Any, Callable, Dict, List, Sequence

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from ..bilm.lstm import LSTMLayer

# Of the Newton-Schulz iteration. Five steps bring singular values to some 0.7 to 1.2,
# but for the smallest; more bring them no nearer to 1.
A, B, C = 3.4445, -4.7750, 2.0315
N_ITERATIONS = 5
EPSILON = 1e-7
# Root mean square of an update, in learning rates: about what AdamW's have.
RMS = 0.2


class Muon(AdamW):
    """AdamW, but for the matrices of the LSTMs: W of each gate for x and for h, and
    W_P. These move by their orthogonalized momentum. torch.optim.Muon takes parameters
    as they are, but a kernel is the bias and the matrices of all gates.

    groups (List[Dict[str, Any]]): As AdamW's; the first has the matrices.
    weights (nn.Module): What has the LSTMs.
    """

    def __init__(
        self,
        groups: List[Dict[str, Any]],
        *args: Any,
        weights: nn.Module,
        **kwargs: Any,
    ) -> None:
        super().__init__(groups, *args, **kwargs)
        self.layers = [m for m in weights.modules() if isinstance(m, LSTMLayer)]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        before = [[W.clone() for W in _matrices(layer)] for layer in self.layers]
        loss = super().step(closure)
        group = self.param_groups[0]
        rate, beta = group["lr"], group["betas"][0]
        for layer, Ws in zip(self.layers, before):
            gradients = _matrices(layer, lambda p: p.grad)
            momenta = _matrices(layer, lambda p: self.state[p]["exp_avg"])
            updates = orthogonalize(
                [torch.lerp(g, m, beta) for g, m in zip(gradients, momenta)]  # Nesterov
            )
            scale = rate * RMS * sqrt(layer.options.dim)
            for now, W, update in zip(_matrices(layer), Ws, updates):
                W.mul_(1 - rate * group["weight_decay"])
                now.copy_(W.sub_(update, alpha=scale))
        return loss


def orthogonalize(matrices: Sequence[Tensor]) -> List[Tensor]:
    """Nearly U V^T of each matrix U S V^T, by Newton-Schulz: in each step,
    X <- (a + b X X^T + c (X X^T)^2) X. The steps change X X^T alone, and X once, by
    their product.

    matrices (Sequence[Floats2d]): (m, n) each, m <= n.
    """
    Xs = [X / (X.norm() + EPSILON) for X in matrices]
    gram = torch.stack([X @ X.t() for X in Xs])
    product = torch.eye(gram.shape[1]).to(gram).expand_as(gram)
    for _ in range(N_ITERATIONS):
        step = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        step.diagonal(dim1=1, dim2=2).add_(A)
        product = step @ product
        gram = step @ gram @ step
    return [p @ X for p, X in zip(product, Xs)]


def _matrices(
    layer: LSTMLayer, of: Callable[[Tensor], Any] = lambda param: param
) -> List[Tensor]:
    """Views of W_P and of W of each gate, for x and for h: (projection, dim) each.

    of (Callable[[Tensor], Tensor]): What of a parameter, for instance its gradient.
    """
    H, P = layer.options.dim, layer.options.projection_dim
    W = of(layer.kernel)[1:, : 4 * H]
    found = [gate for half in W.split(P) for gate in half.split(H, 1)]
    return found if layer.projection is None else [*found, of(layer.projection).t()]
