"""A wider biLM that begins as a trained one: it computes the same, and can learn more.

    python scripts/widen.py en_elmo_sm wider --dim 1408 --projection-dim 256

Cells and projections are added to the model's. The new ones read all inputs, by weights
as before any training. Nothing old reads them yet: those weights are 0 (so the function
is preserved, as in Net2Net, Chen et al. 2016; but nothing is copied twice). Go on with
`spacy elmo pretrain --init-from wider`.
"""

from pathlib import Path

import torch
import typer
from torch import Tensor

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.lstm import LSTMLayer
from spacy_elmo.bilm.options import Options
from spacy_elmo.cli.inputs import write_tokenizer
from spacy_elmo.errors import require, require_number
from spacy_elmo.pretraining.initialization import initialize
from spacy_elmo.pretraining.language_model import LanguageModel, write_model
from spacy_elmo.pretraining.softmax import Softmax
from spacy_elmo.pretraining.vocabulary import VOCABULARY, write_vocabulary
from spacy_elmo.weights import resolve


@torch.no_grad()
def main(
    model: str, output: Path, dim: int = 1408, projection_dim: int = 256, seed: int = 0
) -> None:
    """Write a model with `dim` cells and a projection of `projection_dim`."""
    require(not output.exists(), "OUTPUT", "a new folder", output)
    trained = LanguageModel.from_path(model)
    options = trained.bilm.options.to_dict()
    options["lstm"].update(dim=dim, projection_dim=projection_dim)
    wide = initialize(BiLM(Options.from_dict(options)), seed)
    require_wider(trained.bilm, wide)
    for name, param in trained.bilm.encoder.named_parameters():
        # All are of the same shape, but for the projection.
        wide.encoder.get_parameter(name)[: len(param)] = param
    for d in range(2):
        for layer, old_layer in zip(wide.layers_of(d), trained.bilm.layers_of(d)):
            widen(layer, old_layer)
    softmax, old = Softmax(len(trained.words), projection_dim), trained.softmax
    softmax.weight.zero_()[:, : old.weight.shape[1]] = old.weight
    softmax.bias.copy_(old.bias)
    write_model(wide, softmax, output)
    write_vocabulary(output / VOCABULARY, trained.words)
    write_tokenizer(resolve(model), output)


def require_wider(trained: BiLM, wide: BiLM) -> None:
    """RAISES (ValueError): If a size is below the model's, or if a projection is needed
    in one of the two alone: where its size is that of its input, there is none.
    """
    old, new = trained.options.lstm, wide.options.lstm
    require_number("dim", new.dim, old.dim)
    require_number("projection_dim", new.projection_dim, old.projection_dim)
    names = [{name for name, _ in bilm.named_parameters()} for bilm in (trained, wide)]
    wanted = "other than dim and the number of filters"
    require(names[0] == names[1], "projection_dim", wanted, new.projection_dim)


def widen(layer: LSTMLayer, old: LSTMLayer) -> None:
    """Put the weights of an LSTM into a wider one, and zeros where what is new would
    change what was there before.
    """
    n_cells, n_old = layer.options.dim, old.options.dim
    n_inputs, n_old_inputs = layer.options.projection_dim, old.options.projection_dim
    gates: Tensor = layer.weight.view(2, n_inputs, 4, n_cells)  # of x and of h
    gates[..., :n_old] = 0
    gates[:, :n_old_inputs, :, :n_old] = old.weight.reshape(2, n_old_inputs, 4, n_old)
    layer.bias.view(4, n_cells)[:, :n_old] = old.bias.view(4, n_old)
    layer.projection[:, :n_old_inputs] = 0
    layer.projection[:n_old, :n_old_inputs] = old.projection


if __name__ == "__main__":
    typer.run(main)
