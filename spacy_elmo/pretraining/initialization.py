"""The weights that a run starts from: drawn, or those of a trained model."""

import math
from functools import partial
from pathlib import Path
from typing import Any, Sequence, Union

import torch
from spacy.util import dict_to_dot
from torch import Tensor, nn

from ..bilm import BiLM, Options
from ..bilm.paths import find_files
from ..errors import Errors, TrainingError, unusable
from ..storage import beside
from ..weights import resolve
from .language_model import LanguageModel, has_softmax
from .softmax import Softmax
from .vocabulary import UNK_ID, VOCABULARY

NO_WORDS = (
    "is not there, and the model has a softmax. Copy the model's there; those of an "
    "archive are not read: unpack it"
)


def initialize(bilm: BiLM, seed: int) -> BiLM:
    """Draw the weights as the reference does before training (bilm-tf, training.py).

    Highways begin by carrying their input (the bias of the carry gate is -2); LSTM
    kernels are Glorot uniform with a bias of 0, to which the cell adds 1 for the
    forget gate.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(param: Tensor, limit: float) -> None:
        nn.init.uniform_(param, -limit, limit, generator=generator)

    normal = partial(nn.init.normal_, mean=0.0, generator=generator)
    encoder, char_cnn = bilm.encoder, bilm.options.char_cnn
    uniform(encoder.char_embed, 1.0)
    for weight, bias in zip(encoder.conv_weight, encoder.conv_bias):
        if char_cnn.activation == "relu":
            uniform(weight, 0.05)
        else:
            normal(weight, std=1 / math.sqrt(weight.shape[1] * weight.shape[2]))
        nn.init.zeros_(bias)
    for module in encoder.highways:
        highway: Any = module
        for linear, b in ((highway.carry, -2.0), (highway.transform, 0.0)):
            normal(linear.weight, std=1 / math.sqrt(linear.in_features))
            nn.init.constant_(linear.bias, b)
    if encoder.projection is not None:
        normal(encoder.projection.weight, std=1 / math.sqrt(char_cnn.n_filters))
        nn.init.zeros_(encoder.projection.bias)
    for layer in (*bilm.layers_of(0), *bilm.layers_of(1)):
        nn.init.zeros_(layer.kernel)
        for param in (layer.weight, layer.projection):
            if param is not None:
                uniform(param, math.sqrt(6 / sum(param.shape)))
    return bilm


def find_start(options: Options, name_or_path: Union[str, Path]) -> Path:
    """The path of the model that a run starts from, without reading its weights.

    RAISES (MissingWeights): If there is none.
    RAISES (CorpusError): If it has a softmax without its words.
    RAISES (TrainingError): If its geometry is not that of the config.
    """
    path = resolve(name_or_path)
    files = find_files(path)
    start = Options.from_json(files.options, files.options_name)
    theirs, ours = (dict_to_dot(x.to_dict()) for x in (start, options))
    names = (name for name in ours if theirs[name] != ours[name])
    different = [f"{name} is {ours[name]}, there {theirs[name]}" for name in names]
    if different:
        raise TrainingError(Errors.E060.format(path=path, what=", ".join(different)))
    vocabulary = beside(path, VOCABULARY)
    if has_softmax(path) and not vocabulary.is_file():
        raise unusable(vocabulary, NO_WORDS)
    return path


def load_start(
    bilm: BiLM, softmax: Softmax, words: Sequence[str], name_or_path: Union[str, Path]
) -> None:
    """Set a biLM and its softmax to those of a trained model.

    Words that both vocabularies have keep their rows of the softmax. New words, which
    were <UNK> to the model, start from its row and share its probability. A model
    without a softmax, such as the official ones, leaves the softmax as it is.

    words (Sequence[str]): The words of the softmax, in its order.
    name_or_path (str or Path): The model, for which `find_start` holds.
    RAISES (WeightsError, CorpusError): If its files are broken.
    """
    path = find_start(bilm.options, name_or_path)
    trained = LanguageModel.from_path(path) if has_softmax(path) else None
    found = BiLM.from_path(path) if trained is None else trained.bilm
    bilm.load_state_dict(found.state_dict())
    if trained is None:
        return
    known = {word: i for i, word in enumerate(trained.words)}
    rows = torch.tensor([known.get(word, UNK_ID) for word in words])
    shared = rows == UNK_ID
    with torch.no_grad():
        softmax.weight.copy_(trained.softmax.weight[rows])
        softmax.bias.copy_(trained.softmax.bias[rows])
        # Together they are as likely as <UNK> was alone.
        softmax.bias[shared] -= shared.sum().log()
