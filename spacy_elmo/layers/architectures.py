"""What a config can name under @architectures."""

from typing import Any, List, Optional

from spacy.tokens import Doc
from spacy.util import registry
from thinc.api import (
    Maxout,
    Model,
    chain,
    concatenate,
    list2ragged,
    ragged2list,
    with_array,
)
from thinc.types import Floats2d, Floats3d

from ..errors import require, require_number
from .doc_encoder import build_bilm as build_bilm
from .doc_encoder import get_shim, require_bilm
from .listener import ELMoListener
from .mix import Layers, ScalarMix

Encoder = Model[List[Doc], List[Floats3d]]
Mix = Model[List[Floats3d], List[Floats2d]]
Tok2Vec = Model[List[Doc], List[Floats2d]]


@registry.architectures("spacy_elmo.ELMoListener.v1")
def build_elmo_listener(
    upstream: str = "*",
    dropout: float = 0.2,
    l2: float = 0.001,
    layer_norm: bool = True,
    layers: Layers = "all",
    init: Optional[List[float]] = None,
    trainable_mix: bool = True,
) -> Tok2Vec:
    """Build a tok2vec layer that listens to an `elmo` component and mixes its layers
    for the task. Its width is that of the component's weights.

    upstream (str): Name of the `elmo` component, or "*" for any.
    dropout, l2, layer_norm, layers, init, trainable_mix: See ScalarMix.
    RETURNS (Model[List[Doc], List[Floats2d]]): (n_tokens, width) for each Doc.
    RAISES (ValueError): If an argument of the mix is out of its range.
    """
    mix = ScalarMix(dropout, l2, layer_norm, layers, init, trainable_mix)
    listener = ELMoListener(upstream)
    model = _mixed(listener, mix)
    model.set_ref("listener", listener)  # where spaCy looks for the width
    return model


@registry.architectures("spacy_elmo.ELMo.v1")
def build_elmo(
    bilm: Encoder,
    dropout: float = 0.2,
    l2: float = 0.001,
    layer_norm: bool = True,
    layers: Layers = "all",
    init: Optional[List[float]] = None,
    trainable_mix: bool = True,
    trainable: bool = False,
    learn_rate_scale: float = 0.2,
) -> Tok2Vec:
    """Build a tok2vec layer with a biLM of its own, for a component that shares it
    with nobody, or that fine-tunes it.

    bilm (Model[List[Doc], List[Floats3d]]): spacy_elmo.BiLM.v1.
    dropout, l2, layer_norm, layers, init, trainable_mix: See ScalarMix.
    trainable (bool): Whether the task trains the biLM too.
    learn_rate_scale (float): The share of the optimizer's learning rate that a
        trainable biLM takes.
    RETURNS (Model[List[Doc], List[Floats2d]]): (n_tokens, width) for each Doc.
    RAISES (ValueError): If `bilm` is another model, or if an argument is out of its
        range.
    """
    require_bilm("bilm", bilm)
    mix = ScalarMix(dropout, l2, layer_norm, layers, init, trainable_mix, trainable)
    require_number("learn_rate_scale", learn_rate_scale, 0)
    if trainable:
        get_shim(bilm).make_trainable(learn_rate_scale)
    return _mixed(bilm, mix)


@registry.architectures("spacy_elmo.EmbedWithELMo.v1")
def build_embed_with_elmo(width: int, embed: Tok2Vec, elmo: Tok2Vec) -> Tok2Vec:
    """Build the paper's enhanced input [x; ELMo] (Peters et al. 2018, section 3.3),
    reduced to a width by a Maxout with layer norm. Stands as `embed` in
    spacy.Tok2Vec.v2.

    width (int): Output width.
    embed (Model[List[Doc], List[Floats2d]]): x, such as spacy.MultiHashEmbed.v2.
    elmo (Model[List[Doc], List[Floats2d]]): A listener, or spacy_elmo.ELMo.v1.
    RETURNS (Model[List[Doc], List[Floats2d]]): (n_tokens, width) for each Doc.
    RAISES (ValueError): If `elmo` is a biLM without a mix, or if width is below 1.
    """
    require_number("width", width, 1)
    has_layers = elmo.has_dim("nL") is not False  # as BiLM.v1, without a mix
    require(not has_layers, "elmo", "a listener or spacy_elmo.ELMo.v1", elmo.name)
    reduce: Model[Any, Any] = Maxout(nO=width, nP=3, normalize=True, dropout=0.0)
    model: Tok2Vec = chain(
        concatenate(embed, elmo), list2ragged(), with_array(reduce), ragged2list()
    )
    model.set_dim("nO", width)
    return model


def _mixed(encoder: Encoder, mix: Mix) -> Tok2Vec:
    model: Tok2Vec = chain(encoder, mix)
    model.init = _init_mixed
    return model


def _init_mixed(model: Tok2Vec, X: Optional[List[Doc]] = None, Y: Any = None) -> None:
    """As in `chain`, but the encoder tells its dimensions without a sample too."""
    encoder, mix = model.layers
    encoder.initialize(X=X)
    for dim in ("nO", "nL"):
        mix.set_dim(dim, encoder.get_dim(dim), force=True)
    mix.initialize(X=encoder.predict(X) if X else None)
    model.set_dim("nO", mix.get_dim("nO"), force=True)
