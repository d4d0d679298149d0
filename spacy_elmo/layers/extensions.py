"""doc._.elmo, span._.elmo and token._.elmo, registered when this is imported."""

from typing import Any, Optional, Union

import numpy as np
from spacy.tokens import Doc, Span, Token
from thinc.types import Floats2d, Floats3d

from ..errors import Errors, RetokenizedError, require

NAME = "elmo"
# Where spaCy keeps the value of an extension without a getter, so that the array is
# serialized with the Doc. The getter is there to check its length.
KEY: Any = ("._.", NAME, None, None)
# Key in doc.user_data for the digest of the weights that made the layers.
DIGEST = "elmo_digest"


def get_layers(doc: Doc) -> Optional[Floats3d]:
    """All layers of a Doc, shape (n_tokens, L + 1, width); None before the `elmo`
    component ran.

    RAISES (RetokenizedError): If the Doc was retokenized since: its rows would be those
        of other tokens.
    """
    layers: Optional[Floats3d] = doc.user_data.get(KEY)
    if layers is not None and len(layers) != len(doc):
        raise RetokenizedError(Errors.E030.format(found=len(layers), wanted=len(doc)))
    return layers


def assign_layers(doc: Doc, layers: Optional[Floats3d]) -> None:
    """RAISES (ValueError): If they are not those of the Doc's tokens."""
    found: Any = layers
    if layers is not None:
        wanted = f"None or numbers of shape ({len(doc)}, L + 1, width)"
        try:
            found = np.asarray(layers, np.float32)
        except (ValueError, TypeError, RuntimeError):  # torch's, of a gradient
            require(False, "doc._.elmo", wanted, type(layers))
        shape = found.shape
        require(len(shape) == 3 and shape[0] == len(doc), "doc._.elmo", wanted, shape)
    doc.user_data[KEY] = found


def get_span_layers(span: Span) -> Optional[Floats3d]:
    """The layers of a Span's tokens, shape (len(span), L + 1, width)."""
    layers = get_layers(span.doc)
    return None if layers is None else layers[span.start : span.end]


def get_token_layers(token: Token) -> Optional[Floats2d]:
    """The layers of a Token, shape (L + 1, width)."""
    layers = get_layers(token.doc)
    return None if layers is None else layers[token.i]


def refuse_layers(part: Union[Span, Token], layers: object) -> None:
    """RAISES (ValueError): Without a setter, spaCy would keep what nobody reads."""
    raise ValueError(Errors.E043)


if not Doc.has_extension(NAME):
    Doc.set_extension(NAME, getter=get_layers, setter=assign_layers)
if not Span.has_extension(NAME):
    Span.set_extension(NAME, getter=get_span_layers, setter=refuse_layers)
if not Token.has_extension(NAME):
    Token.set_extension(NAME, getter=get_token_layers, setter=refuse_layers)
