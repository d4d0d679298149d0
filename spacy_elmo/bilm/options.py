import json
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Tuple, Union

from ..errors import Errors, WeightsError

# 256 byte values, then begin/end of sentence, begin/end of word, padding. The
# released files say 262, because AllenNLP and bilm-tf shift the ids by one at
# inference to make room for a mask; bilm-tf's training options say 261. The table
# of embeddings has 261 rows in both cases.
N_CHARACTERS = 261
ACTIVATIONS = ("relu", "tanh")
# Bounds of what no dataset of the weights would contradict before it costs time or
# memory: parts of a network, characters of a word.
MAX_PARTS = 256
MAX_CHARACTERS = 1024
MAX_CLIP = 3.4e38  # the largest number in float32


@dataclass(frozen=True)
class CharCNNOptions:
    """The context-insensitive token encoder (Peters et al. 2018, section 3.4).

    filters: (width in characters, number of filters) of each convolution.
    """

    filters: Tuple[Tuple[int, int], ...]
    embedding_dim: int
    n_highway: int = 0
    activation: str = "relu"
    max_characters_per_token: int = 50
    n_characters: int = N_CHARACTERS + 1

    @property
    def n_filters(self) -> int:
        return sum(n for _, n in self.filters)


@dataclass(frozen=True)
class LSTMOptions:
    """The stacked LSTMs of each direction. A clip of None does not clip."""

    dim: int
    projection_dim: int
    n_layers: int
    cell_clip: Optional[float] = None
    proj_clip: Optional[float] = None
    use_skip_connections: bool = False

    @property
    def has_projection(self) -> bool:
        return self.projection_dim != self.dim


@dataclass(frozen=True)
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
        RETURNS (Options): The options.
        RAISES (WeightsError): If a key is missing or has an impossible value.
        """
        read = _Reader(data, source)
        n_characters = read.number("char_cnn.n_characters", N_CHARACTERS + 1)
        if n_characters not in (N_CHARACTERS, N_CHARACTERS + 1):
            read.fail("char_cnn.n_characters", f"is {n_characters}, not 261 or 262")
        activation = read.get("char_cnn.activation")
        if activation not in ACTIVATIONS:
            known = " or ".join(ACTIVATIONS)
            read.fail("char_cnn.activation", f"is unknown: {activation!r} ({known})")
        char_cnn = CharCNNOptions(
            filters=read.filters(),
            embedding_dim=read.number("char_cnn.embedding.dim"),
            n_highway=read.number(
                "char_cnn.n_highway", 0, minimum=0, maximum=MAX_PARTS
            ),
            activation=activation,
            max_characters_per_token=read.number(
                "char_cnn.max_characters_per_token",
                50,
                minimum=3,
                maximum=MAX_CHARACTERS,
            ),
        )
        widest = max(width for width, _ in char_cnn.filters)
        if widest > char_cnn.max_characters_per_token:
            read.fail("char_cnn.filters", f"has one of {widest} characters, more than "
                      "max_characters_per_token")  # fmt: skip
        lstm = LSTMOptions(
            dim=read.number("lstm.dim"),
            projection_dim=read.number("lstm.projection_dim"),
            n_layers=read.number("lstm.n_layers", maximum=MAX_PARTS),
            cell_clip=read.clip("lstm.cell_clip"),
            proj_clip=read.clip("lstm.proj_clip"),
            use_skip_connections=read.flag("lstm.use_skip_connections"),
        )
        return cls(char_cnn=char_cnn, lstm=lstm)

    @classmethod
    def from_json(cls, text: Union[str, bytes], source: Union[str, Path]) -> "Options":
        """Parse the text of an options file. `source` is named in errors."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise WeightsError(Errors.E006.format(path=source, reason=e)) from None
        return cls.from_dict(data, source)

    def to_dict(self) -> Dict[str, Any]:
        """The official nested layout, as AllenNLP and simple_elmo read it."""
        char_cnn, lstm = self.char_cnn, self.lstm
        return {
            "lstm": {
                "use_skip_connections": lstm.use_skip_connections,
                "projection_dim": lstm.projection_dim,
                "cell_clip": lstm.cell_clip,
                "proj_clip": lstm.proj_clip,
                "dim": lstm.dim,
                "n_layers": lstm.n_layers,
            },
            "char_cnn": {
                "activation": char_cnn.activation,
                "filters": [list(f) for f in char_cnn.filters],
                "n_highway": char_cnn.n_highway,
                "embedding": {"dim": char_cnn.embedding_dim},
                "n_characters": char_cnn.n_characters,
                "max_characters_per_token": char_cnn.max_characters_per_token,
            },
        }


class _Reader:
    """Dotted look-ups in the parsed JSON; each error names the file and the key."""

    def __init__(self, data: Any, source: Union[str, Path]):
        self.data = data
        self.source = source

    def fail(self, key: str, problem: str) -> None:
        raise WeightsError(
            Errors.E007.format(path=self.source, key=key, problem=problem)
        )

    def get(self, key: str, *default: Any) -> Any:
        value = self.data
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                if not default:
                    self.fail(key, "is missing")
                return default[0]
            value = value[part]
        return value

    def number(
        self, key: str, *default: Any, minimum: int = 1, maximum: int = 2**20
    ) -> int:
        value = self.get(key, *default)
        if value is None and default:
            value = default[0]
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"must be a whole number, not {value!r}")
        if not minimum <= value <= maximum:
            self.fail(key, f"is out of range: {value} ({minimum} to {maximum:,})")
        return int(value)

    def flag(self, key: str) -> bool:
        value = self.get(key, False)
        if value is not None and not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {value!r}")
        return bool(value)

    def clip(self, key: str) -> Optional[float]:
        value = self.get(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(key, f"must be a number or null, not {value!r}")
        if not 0 <= value <= MAX_CLIP:
            self.fail(key, f"is out of range: {value} (0 to {MAX_CLIP}, or null)")
        # 0 is "do not clip", as in AllenNLP: clipping to 0 would leave nothing.
        return float(value) or None

    def filters(self) -> Tuple[Tuple[int, int], ...]:
        key = "char_cnn.filters"
        value = self.get(key)
        pairs = (
            isinstance(value, list)
            and value
            and all(
                isinstance(pair, list)
                and len(pair) == 2
                and all(type(n) is int and 0 < n <= 2**16 for n in pair)
                for pair in value
            )
        )
        if not pairs:
            found = reprlib.repr(value)
            self.fail(key, f"must be a list of [width, number] pairs, not {found}")
        if len(value) > MAX_PARTS:
            self.fail(key, f"has {len(value):,} pairs, more than {MAX_PARTS}")
        return tuple((width, n) for width, n in value)
