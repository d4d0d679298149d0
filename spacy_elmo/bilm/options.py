import json
import reprlib
from codecs import BOM_UTF8
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Dict, Literal, Optional, Tuple, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass

from ..errors import Errors, WeightsError

# 256 byte values, then begin/end of sentence, begin/end of word, padding. The
# released files say 262, because AllenNLP and bilm-tf shift the ids by one at
# inference to make room for a mask; bilm-tf's training options say 261. The table
# of embeddings has 261 rows in both cases.
N_CHARACTERS = 261

# Bounds on sizes that would cost time or memory before any dataset of the weights
# contradicts them: widths, parts of a network, characters of a word.
Width = Annotated[int, Field(ge=1, le=2**20)]
Parts = Annotated[int, Field(ge=0, le=256)]
Characters = Annotated[int, Field(ge=3, le=1024)]
Filter = Tuple[Width, Width]
# Up to the largest number in float32. 0 is "do not clip", as in AllenNLP: clipping to
# 0 would leave nothing.
Clip = Annotated[
    Optional[Annotated[float, Field(ge=0, le=3.4e38)]],
    AfterValidator(lambda clip: clip or None),
]
CONFIG = ConfigDict(strict=True)


@dataclass(frozen=True, config=CONFIG)
class EmbeddingOptions:
    """The character embeddings."""

    dim: Width


@dataclass(frozen=True, config=CONFIG)
class CharCNNOptions:
    """The context-insensitive token encoder (Peters et al. 2018, section 3.4).

    filters: (width in characters, number of filters) of each convolution.
    """

    filters: Annotated[Tuple[Filter, ...], Field(min_length=1, max_length=256)]
    embedding: EmbeddingOptions
    activation: Literal["relu", "tanh"]
    # null is none, as in bilm-tf
    n_highway: Annotated[Parts, BeforeValidator(lambda n: 0 if n is None else n)] = 0
    max_characters_per_token: Characters = 50
    n_characters: Annotated[
        Literal[261, 262], AfterValidator(lambda _: N_CHARACTERS + 1)
    ] = 262

    def __post_init__(self) -> None:
        if max(width for width, _ in self.filters) > self.max_characters_per_token:
            raise ValueError("filters are wider than max_characters_per_token")

    @property
    def n_filters(self) -> int:
        return sum(n for _, n in self.filters)


@dataclass(frozen=True, config=CONFIG)
class LSTMOptions:
    """The stacked LSTMs of each direction. A clip of None does not clip."""

    dim: Width
    projection_dim: Width
    n_layers: Annotated[Parts, Field(ge=1)]
    cell_clip: Clip = None
    proj_clip: Clip = None
    use_skip_connections: bool = False


@dataclass(frozen=True, config=CONFIG)
class Options:
    """The geometry of a biLM: the part of the official options.json that describes
    the network. Other keys (bilm-tf writes its training settings into the same
    file) are ignored.
    """

    char_cnn: CharCNNOptions
    lstm: LSTMOptions

    @property
    def width(self) -> int:
        """Width of a layer: forward and backward state side by side."""
        return 2 * self.lstm.projection_dim

    @property
    def n_layers(self) -> int:
        """L + 1: the token layer and the L biLSTM layers."""
        return self.lstm.n_layers + 1

    @classmethod
    def from_dict(cls, data: Any, source: Union[str, Path] = "options") -> "Options":
        """Read the official nested layout.

        data (dict): The parsed options.json.
        source (str or Path): Named in errors.
        RAISES (WeightsError): If a key is missing or has an impossible value.
        """
        return cls.from_json(json.dumps(data), source)

    @classmethod
    def from_json(cls, text: Union[str, bytes], source: Union[str, Path]) -> "Options":
        """Parse the text of an options file. `source` is named in errors."""
        if isinstance(text, bytes):
            text = text.removeprefix(BOM_UTF8)
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as e:
            error = e.errors()[0]
        if error["type"] == "json_invalid":
            reason = error["ctx"]["error"]
            raise WeightsError(Errors.E006.format(path=source, reason=reason))
        key, found = ".".join(map(str, error["loc"])), reprlib.repr(error["input"])
        raise WeightsError(
            Errors.E007.format(path=source, key=key, problem=error["msg"], found=found)
        )

    def to_dict(self) -> Dict[str, Any]:
        """The official nested layout, as AllenNLP and simple_elmo read it."""
        return asdict(self)

    def to_json(self) -> str:
        """The text of an options file."""
        return json.dumps(self.to_dict(), indent=2) + "\n"
