import math
from typing import Any

import torch
from torch import Tensor, nn

from ..bilm import BiLM
from ..bilm.lstm import LSTMLayer


def initialize(bilm: BiLM, seed: int) -> BiLM:
    """Draw the weights as the reference does before training (bilm-tf, training.py).

    Highways begin by carrying their input (the bias of the carry gate is -2); LSTM
    kernels are Glorot uniform with a bias of 0, to which the cell adds 1 for the
    forget gate.

    bilm (BiLM): Changed in place.
    seed (int): Of the draws.
    RETURNS (BiLM): The same.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(param: Tensor, limit: float) -> None:
        nn.init.uniform_(param, -limit, limit, generator=generator)

    def normal(param: Tensor, std: float) -> None:
        nn.init.normal_(param, 0.0, std, generator=generator)

    encoder, char_cnn = bilm.encoder, bilm.options.char_cnn
    uniform(encoder.char_embed, 1.0)
    for weight, bias in zip(encoder.conv_weight, encoder.conv_bias):
        if char_cnn.activation == "relu":
            uniform(weight, 0.05)
        else:
            normal(weight, 1 / math.sqrt(weight.shape[1] * weight.shape[2]))
        nn.init.zeros_(bias)
    for module in encoder.highways:
        highway: Any = module
        for linear, b in ((highway.carry, -2.0), (highway.transform, 0.0)):
            normal(linear.weight, 1 / math.sqrt(linear.in_features))
            nn.init.constant_(linear.bias, b)
    if encoder.projection is not None:
        normal(encoder.projection.weight, 1 / math.sqrt(char_cnn.n_filters))
        nn.init.zeros_(encoder.projection.bias)
    for layer in bilm.modules():
        if isinstance(layer, LSTMLayer):
            nn.init.zeros_(layer.bias)
            for param in (layer.weight, layer.projection):
                if param is not None:
                    uniform(param, math.sqrt(6 / sum(param.shape)))
    return bilm
