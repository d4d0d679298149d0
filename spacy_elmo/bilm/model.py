from pathlib import Path
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import Errors
from .characters import BOS, EOS, words_to_ids
from .encoder import CharacterEncoder
from .lstm import LSTMLayer, LSTMState
from .options import Options
from .packing import batch_sizes, packed_positions

Floats3d = npt.NDArray[np.float32]
Ints1d = npt.NDArray[np.int64]

# Rows enough that a step's products do not wait for the weights, and few enough that
# the layers of a batch of the original size take a hundred megabytes.
MAX_BATCH_TOKENS = 8192
# Distinct words that go through the token encoder at a time.
MAX_BATCH_WORDS = 4096
# Where a table of token vectors has the boundaries.
BOS_ROW, EOS_ROW = 0, 1


class BiLMState(NamedTuple):
    """The carried LSTM state of a batch, a row a sentence. Direction 0 is forward,
    1 backward. `h` has shape (2, L, n_rows, projection), `c` (2, L, n_rows, dim).
    """

    h: Tensor
    c: Tensor


class BiLM(nn.Module):
    """The bidirectional language model of ELMo (Peters et al. 2018, section 3): a
    character encoder shared by two stacks of LSTMs, which read forward and backward
    and do not see each other.

    options (Options): The geometry. The weights are not initialised: use
        `BiLM.from_path` for trained ones.
    """

    def __init__(self, options: Options):
        super().__init__()
        self.options = options
        lstm = options.lstm
        self.encoder = CharacterEncoder(options.char_cnn, lstm.projection_dim)
        self.directions = nn.ModuleList(
            nn.ModuleList(LSTMLayer(lstm) for _ in range(lstm.n_layers))
            for _ in range(2)
        )
        # The mean state that the weights were stored with, if any, with one row; and
        # whether sentences start from it rather than from zeros.
        self.warm: Optional[BiLMState] = None
        self.starts_warm = False

    @classmethod
    def from_path(cls, path: Union[str, Path]) -> "BiLM":
        """Load trained weights in the official format.

        path (str or Path): A directory or .zip with one options file and one .hdf5
            file, or an .hdf5 file that has its options file beside it.
        RETURNS (BiLM): The model, in evaluation mode and without gradients.
        RAISES (WeightsError): If anything is missing, broken or contradictory.
        """
        from .weights import read_bilm

        return read_bilm(path)

    def save(self, directory: Union[str, Path], *, dtype: str = "float32") -> None:
        """Write options.json and weights.hdf5 in the official layout.

        directory (str or Path): Made if need be.
        dtype (str): "float32" or "float16".
        """
        from .weights import write_bilm

        write_bilm(self, directory, dtype=dtype)

    def layers_of(self, direction: int) -> List[LSTMLayer]:
        """The LSTM layers of a direction, 0 forward and 1 backward."""
        layers: Any = self.directions[direction]
        return list(layers)

    def use_bfloat16(self) -> "BiLM":
        """Predict with the LSTMs' matrix products in bfloat16: faster on machines
        that have it, and not exact to 1e-5 any more. What `save` writes stays as it
        is.
        """
        for layer in self.modules():
            if isinstance(layer, LSTMLayer):
                layer.use_bfloat16()
        return self

    def use_warm_state(self) -> "BiLM":
        """Start sentences from the mean state that the weights were stored with, for
        models that were trained with carried state.

        RAISES (ValueError): If there is none.
        """
        if self.warm is None:
            raise ValueError(Errors.E044)
        self.starts_warm = True
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> "BiLM":
        # Moves with the parameters, and is none of them.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.warm is not None:
            self.warm = BiLMState(fn(self.warm.h), fn(self.warm.c))
        return self

    def forward(
        self,
        x: Tensor,
        sizes: Sequence[int],
        state: Optional[BiLMState] = None,
        *,
        dropout: float = 0.0,
    ) -> Tuple[Tensor, BiLMState]:
        """Run both directions over packed token vectors (see `packing`). A pure
        function: the state goes in and comes out, nothing is kept.

        x (Floats2d): Token vectors of the encoder, boundaries included, packed;
            shape (n_tokens, projection).
        sizes (Sequence[int]): Rows alive at each time step.
        state (BiLMState): The state to start from; None for zeros, or for the warm
            state after `use_warm_state`.
        dropout (float): Of the input of each LSTM layer, in training.
        RETURNS (Tuple[Floats3d, BiLMState]): Layers, shape (n_tokens, L + 1,
            2 * projection), layer 0 being [x; x], and the state after each row.
        """
        if state is None and self.starts_warm:
            state = self.initial_state(max(sizes, default=0))
        P, L = x.shape[1], self.options.lstm.n_layers
        y = x.new_empty(x.shape[0], L + 1, 2 * P)
        y[:, 0] = x.repeat(1, 2)
        states = []
        for d in range(2):
            layers, last = self.run_direction(
                d, x, sizes, _state_of(state, d), reverse=d == 1, dropout=dropout
            )
            for i, layer in enumerate(layers):
                y[:, i + 1, d * P : (d + 1) * P] = layer
            states.append(last)
        return y, _join_states(states)

    def run_direction(
        self,
        direction: int,
        x: Tensor,
        sizes: Sequence[int],
        state: Optional[List[LSTMState]] = None,
        *,
        reverse: bool = False,
        keep: Optional[Tensor] = None,
        dropout: float = 0.0,
    ) -> Tuple[List[Tensor], List[LSTMState]]:
        """Run the LSTMs of one direction. Arguments as in LSTMLayer.

        RETURNS (Tuple[List[Floats2d], List[LSTMState]]): The output of each layer,
            (n_tokens, projection), and each layer's state after its last step.
        """
        outputs, states = [], []
        for i, layer in enumerate(self.layers_of(direction)):
            x = F.dropout(x, dropout, training=dropout > 0)
            y, last = layer(
                x,
                sizes,
                None if state is None else state[i],
                reverse=reverse,
                keep=keep,
            )
            # The residual joins outside the recurrence: it is in the outputs, but
            # not in the carried state (ResidualWrapper in bilm-tf).
            x = x + y if i > 0 and self.options.lstm.use_skip_connections else y
            outputs.append(x)
            states.append(last)
        return outputs, states

    def encode_words(self, words: Sequence[str]) -> Tensor:
        """Encode distinct words without their context, shape (n, projection)."""
        device = self.encoder.char_embed.device
        width = self.options.char_cnn.max_characters_per_token
        blocks = [
            self.encoder.char_embed.new_empty(0, self.options.lstm.projection_dim)
        ]
        for i in range(0, len(words), MAX_BATCH_WORDS):
            ids = words_to_ids(words[i : i + MAX_BATCH_WORDS], width)
            blocks.append(self.encoder(torch.from_numpy(ids).to(device)))
        return torch.cat(blocks)

    @torch.no_grad()
    def encode(
        self,
        sentences: Sequence[Sequence[str]],
        state: Optional[BiLMState] = None,
        *,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
    ) -> Tuple[List[Floats3d], BiLMState]:
        """All layers for each word of each sentence.

        sentences (Sequence[Sequence[str]]): Lists of words. The boundaries `<S>` and
            `</S>` are added and taken off again.
        state (BiLMState): What an earlier call with as many sentences returned.
            None starts from the zero state (or the warm one, after
            `use_warm_state`), so that the result depends on nothing but the sentence.
        max_batch_tokens (int): Bounds the memory in use beside the result.
        RETURNS (Tuple[List[Floats3d], BiLMState]): Float32 arrays of shape
            (n_words, L + 1, 2 * projection), layer 0 being the token layer, and the
            state of each row after its last word. An empty sentence gives an empty
            array and keeps its state.
        """
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                raise ValueError(Errors.E022.format(i=i, type="string"))
        index: Dict[str, int] = {BOS: BOS_ROW, EOS: EOS_ROW}
        ids = [[index.setdefault(w, len(index)) for w in s] for s in sentences]
        table = self.encode_words(list(index))
        return self.encode_ids(table, ids, state, max_batch_tokens=max_batch_tokens)

    @torch.no_grad()
    def encode_ids(
        self,
        table: Tensor,
        sentences: Sequence[Sequence[int] | Ints1d],
        state: Optional[BiLMState] = None,
        *,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
    ) -> Tuple[List[Floats3d], BiLMState]:
        """As `encode`, for words given as rows of a table of token vectors.

        table (Floats2d): Token vectors, shape (n_words, projection); row 0 is `<S>`
            and row 1 `</S>`.
        """
        empty = np.zeros((0, self.options.n_layers, self.options.width), np.float32)
        layers: List[Floats3d] = [empty] * len(sentences)
        n_rows = len(sentences)
        after = self.initial_state(n_rows) if state is None else _copy_state(state)
        if after.h.shape[2] != n_rows:
            found = after.h.shape[2]
            raise ValueError(Errors.E020.format(found=found, wanted=n_rows))
        for batch in make_batches(sentences, max_batch_tokens):
            x = table[torch.from_numpy(batch.words).to(table.device)]
            before = None if state is None else _rows_of(state, batch.rows)
            y, last = self.forward(x, batch.sizes, before)
            after.h[:, :, batch.rows], after.c[:, :, batch.rows] = last.h, last.c
            flat = y.cpu().numpy()
            # Indexing copies: no sentence keeps its whole batch in memory.
            for row, where in zip(batch.rows, batch.positions):
                layers[row] = flat[where]
        return layers, after

    def initial_state(self, n_rows: int) -> BiLMState:
        """The state that a batch starts from: zeros, or the warm state."""
        if self.starts_warm and self.warm is not None:
            h, c = (part.repeat(1, 1, n_rows, 1) for part in self.warm)
            return BiLMState(h, c)
        lstm, new = self.options.lstm, self.encoder.char_embed.new_zeros
        shape = (2, lstm.n_layers, n_rows)
        return BiLMState(new(*shape, lstm.projection_dim), new(*shape, lstm.dim))


class SentenceBatch(NamedTuple):
    """Sentences of like length, packed, with their boundaries.

    rows: Which sentences, the longest first.
    words: The table row of each packed token.
    sizes: Rows alive at each time step.
    positions: Where the words of each sentence stand, without the boundaries.
    """

    rows: List[int]
    words: Ints1d
    sizes: List[int]
    positions: List[Ints1d]


def make_batches(
    sentences: Sequence[Sequence[int] | Ints1d], max_tokens: int
) -> Iterator[SentenceBatch]:
    """Sort sentences by length and cut them into batches of at most `max_tokens`
    tokens, or of one longer sentence. Empty sentences are left out.

    sentences (Sequence[Sequence[int]]): Rows of the table of token vectors.
    """
    order = sorted(
        (r for r, sentence in enumerate(sentences) if len(sentence)),
        key=lambda r: -len(sentences[r]),
    )
    start = 0
    while start < len(order):
        end, n_tokens = start + 1, len(sentences[order[start]]) + 2
        while end < len(order):
            n_tokens += len(sentences[order[end]]) + 2
            if n_tokens > max_tokens:
                break
            end += 1
        rows = order[start:end]
        start = end
        with_boundaries = [len(sentences[r]) + 2 for r in rows]
        positions = packed_positions(with_boundaries)
        words = np.empty(sum(with_boundaries), dtype=np.int64)
        for row, where in zip(rows, positions):
            words[where[0]], words[where[-1]] = BOS_ROW, EOS_ROW
            words[where[1:-1]] = sentences[row]
        yield SentenceBatch(
            rows, words, batch_sizes(with_boundaries), [p[1:-1] for p in positions]
        )


def _state_of(state: Optional[BiLMState], direction: int) -> Optional[List[LSTMState]]:
    if state is None:
        return None
    return [LSTMState(h, c) for h, c in zip(state.h[direction], state.c[direction])]


def _join_states(states: List[List[LSTMState]]) -> BiLMState:
    return BiLMState(
        torch.stack([torch.stack([s.h for s in layers]) for layers in states]),
        torch.stack([torch.stack([s.c for s in layers]) for layers in states]),
    )


def _rows_of(state: BiLMState, rows: List[int]) -> BiLMState:
    return BiLMState(state.h[:, :, rows], state.c[:, :, rows])


def _copy_state(state: BiLMState) -> BiLMState:
    return BiLMState(state.h.clone(), state.c.clone())
