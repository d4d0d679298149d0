from pathlib import Path
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import require
from .batching import Ints1d, Moves, Reading, SentenceBatch, SentenceRows, make_batches
from .characters import as_words, number_words, words_to_ids
from .encoder import CharacterEncoder
from .kernels import no_autocast
from .lstm import LSTMLayer, LSTMState, stack_states
from .official_format import Layout, digest, layout, read_weights, write_files
from .options import Options
from .paths import find_files
from .precision import choose_precision
from .tuning import MAX_BATCH_TOKENS, MAX_BATCH_WORDS

Floats3d = npt.NDArray[np.float32]


class BiLM(nn.Module):
    """The bidirectional language model of ELMo (Peters et al. 2018, section 3): a
    character encoder shared by two stacks of LSTMs, which read forward and backward
    and do not see each other.

    options (Options): The geometry. The weights are not initialized: use
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

    @classmethod
    def from_path(cls, path: Union[str, Path]) -> "BiLM":
        """Load trained weights in the official format.

        path (str or Path): A directory or .zip with one options file and one .hdf5
            file, or an .hdf5 file that has its options file beside it.
        RETURNS (BiLM): The model, in evaluation mode and without gradients.
        RAISES (WeightsError): If anything is missing, broken or contradictory.
        """
        files = find_files(path)
        options = Options.from_json(files.options, files.options_name)
        # Without memory until the file is known to fit: options can ask for terabytes.
        with torch.device("meta"):
            bilm = cls(options)
        read_weights(files, bilm)
        return bilm.eval().requires_grad_(False)

    def save(
        self,
        directory: Union[str, Path],
        *,
        dtype: str = "float32",
        extra: Mapping[str, npt.NDArray[np.float32]] = {},
    ) -> None:
        """Write options.json and weights.hdf5 in the official layout.

        directory (str or Path): Made if need be.
        dtype (str): "float32" or "float16".
        extra (Mapping[str, ndarray]): More datasets by name, such as the softmax.
        RAISES (ValueError): If there is no such dtype, or if a number is too large for
            it.
        RAISES (OSError): If the files cannot be written.
        """
        write_files(Path(directory), self.options, self.layout(), dtype, extra)

    def layout(self) -> Layout:
        """The parameters as datasets of the official layout."""
        return layout(self.encoder, [self.layers_of(0), self.layers_of(1)])

    def digest(self) -> str:
        """A name for geometry and weights, the same in all releases."""
        return digest(self.options, self.layout())

    @property
    def n_parameters(self) -> int:
        """Trained numbers, without the padding of the LSTMs' kernels."""
        return sum(view.numel() for views in self.layout().values() for view in views)

    def layers_of(self, direction: int) -> List[LSTMLayer]:
        """The LSTM layers of a direction, 0 forward and 1 backward."""
        layers: Any = self.directions[direction]
        return list(layers)

    @property
    def precision(self) -> str:
        """Of the LSTMs' products in prediction."""
        return self.layers_of(0)[0].precision

    def use_precision(self, name: str) -> "BiLM":
        """Predict with the LSTMs' products in a precision, on the device where the
        model is now. Training and `save` stay as they are.

        name (str): "float32", exact to 1e-5; "bfloat16"; "int8"; or "auto", of these
            the one that is fastest in batches on such a machine (none is timed). One
            that is slower than float32 here warns, and float32 is used.
        RAISES (ValueError): If there is no such precision.
        """
        name = choose_precision(name, self.encoder.char_embed.device)
        for layer in (*self.layers_of(0), *self.layers_of(1)):
            layer.precision = name
        return self

    def forward(
        self, table: Tensor, batch: SentenceBatch, state: Optional[LSTMState] = None
    ) -> Tuple[Tensor, LSTMState]:
        """Run both directions over a batch of sentences. A pure function: the state
        goes in and comes out, nothing is kept.

        table (Floats2d): Token vectors of the encoder, shape (n, projection).
        batch (SentenceBatch): The sentences, as rows of the table.
        state (LSTMState): The state to start from; None for zeros.
        RETURNS (Tuple[Floats3d, LSTMState]): Layers, shape (n_words, L + 1,
            2 * projection), layer 0 being [x; x], and the state after each row.
        """
        P, L = table.shape[1], self.options.lstm.n_layers
        y = table.new_empty(len(batch.rows), L + 1, 2 * P)
        rows = torch.from_numpy(batch.rows).to(table.device)
        x = table.index_select(0, rows)
        y[:, 0, :P], y[:, 0, P:] = x, x
        states = []
        for d, reading in enumerate(batch.readings):
            before = state and LSTMState(state.h[d], state.c[d])
            layers, last = self.run_reading(d, table, reading, before)
            for i, layer in enumerate(layers):
                y[:, i + 1, d * P : (d + 1) * P] = layer
            states.append(last)
        return y, stack_states(states)

    def run_reading(
        self,
        direction: int,
        table: Tensor,
        reading: Reading,
        state: Optional[LSTMState] = None,
    ) -> Tuple[List[Tensor], LSTMState]:
        """Run the LSTMs of one direction over what it reads of some sentences.

        table (Floats2d): Token vectors, shape (n, projection).
        reading (Reading): Rows of the table.
        state (LSTMState): Of the layers, as for `run_direction`, a row for each
            sentence.
        RETURNS (Tuple[List[Floats2d], LSTMState]): The output of each layer at the
            places of the reading, sentence after sentence, and the state after the
            last step.
        """

        def on_device(x: Ints1d) -> Tensor:
            return torch.from_numpy(x).to(table.device)

        if state is None:
            zeros = self.initial_state(len(reading.places))
            state = LSTMState(zeros.h[direction], zeros.c[direction])
        rows, index = np.unique(reading.inputs, return_inverse=True)
        layers, last = self.run_direction(
            direction, table.index_select(0, on_device(rows)), reading.sizes, state,
            index=on_device(index), moves=reading.moves if any(reading.moves) else None,
        )  # fmt: skip
        places = on_device(np.concatenate(reading.places))
        return [layer.index_select(0, places) for layer in layers], last

    def run_direction(
        self,
        direction: int,
        x: Tensor,
        sizes: Sequence[int],
        state: Optional[LSTMState] = None,
        *,
        index: Optional[Tensor] = None,
        moves: Optional[Moves] = None,
        keep: Optional[Tensor] = None,
        dropout: float = 0.0,
    ) -> Tuple[List[Tensor], LSTMState]:
        """Run the LSTMs of one direction over what it reads, in its order. Arguments
        as in LSTMLayer.

        state (LSTMState): Of the layers, which are its first axis; None for zeros.
        index (Ints1d): Of the first layer.
        dropout (float): Of the input of each LSTM layer, in training.
        RETURNS (Tuple[List[Floats2d], LSTMState]): The output of each layer,
            (n_tokens, projection), and the layers' state after the last step.
        """
        outputs, states = [], []
        for i, layer in enumerate(self.layers_of(direction)):
            x = F.dropout(x, dropout, training=dropout > 0)
            before = None if state is None else LSTMState(state.h[i], state.c[i])
            y, last = layer(x, sizes, before, index=index, moves=moves, keep=keep)
            index = None  # A layer above has one input per token.
            # The residual joins outside the recurrence: it is in the outputs, but
            # not in the carried state (ResidualWrapper in bilm-tf).
            x = x + y if i > 0 and self.options.lstm.use_skip_connections else y
            outputs.append(x)
            states.append(last)
        return outputs, stack_states(states)

    def encode_words(self, words: Sequence[str]) -> Tensor:
        """Encode distinct words without their context, shape (n, projection)."""
        width = self.options.char_cnn.max_characters_per_token
        ids = torch.from_numpy(words_to_ids(words, width))
        parts = ids.to(self.encoder.char_embed.device).split(MAX_BATCH_WORDS)
        with no_autocast(self.encoder.char_embed):
            return torch.cat([self.encoder(part) for part in parts])

    @torch.no_grad()
    def encode(
        self,
        sentences: Iterable[Iterable[str]],
        state: Optional[LSTMState] = None,
        *,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
    ) -> Tuple[List[Floats3d], LSTMState]:
        """All layers for each word of each sentence.

        sentences (Iterable[Iterable[str]]): Lists of words. The boundaries `<S>` and
            `</S>` are added and taken off again.
        state (LSTMState): What an earlier call with as many sentences returned.
            None starts from the zero state, so that the result depends on nothing but
            the sentence.
        max_batch_tokens (int): Bounds the memory in use beside the result.
        RETURNS (Tuple[List[Floats3d], LSTMState]): Float32 arrays of shape
            (n_words, L + 1, 2 * projection), layer 0 being the token layer, and the
            state of each row after the boundary that closes it (`</S>` forward, `<S>`
            backward). An empty sentence gives an empty array and keeps its state.
        RAISES (ValueError): If a sentence is no list of strings, or if the state has
            another number of rows.
        """
        sentences = as_words(sentences)
        words, ids = number_words(sentences)
        # A caller who picks the rows of some sentences passes a plain pair (h, c).
        before = LSTMState(*(state or self.initial_state(len(sentences))))
        rows, wanted = before.h.shape[2], f"{len(sentences)}, one per sentence"
        require(rows == len(sentences), "the state's number of rows", wanted, rows)
        after = LSTMState(before.h.clone(), before.c.clone())
        layers = self.encode_ids(
            self.encode_words(words), ids, after,
            share=state is None, max_batch_tokens=max_batch_tokens,
        )  # fmt: skip
        return layers, after

    @torch.no_grad()
    def encode_ids(
        self,
        table: Tensor,
        sentences: SentenceRows,
        state: Optional[LSTMState] = None,
        *,
        share: bool = True,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
    ) -> List[Floats3d]:
        """The layers that `encode` gives, for words given as rows of a table of token
        vectors.

        table (Floats2d): Token vectors, shape (n_words, projection); row BOS_ROW is
            `<S>` and row EOS_ROW `</S>`.
        state (LSTMState): The state before each sentence, which becomes the state
            after it in place. Without it, sentences start from zeros, and nothing is
            computed that only the state after them needs.
        share (bool): Whether all sentences start from the same state, so that their
            shared beginnings and ends are read once.
        RETURNS (List[Floats3d]): (n_words, L + 1, 2 * projection) for each sentence.
        """
        shape = (0, self.options.n_layers, self.options.width)
        layers: List[Floats3d] = [np.zeros(shape, np.float32)] * len(sentences)
        closed = state is not None
        for batch in make_batches(sentences, max_batch_tokens, share, closed):
            order = torch.tensor(batch.order)
            before = state and LSTMState(state.h[:, :, order], state.c[:, :, order])
            y, after = self(table, batch, before)
            ends = np.cumsum([len(sentences[i]) for i in batch.order])
            for i, X in zip(batch.order, np.split(y.float().cpu().numpy(), ends)):
                layers[i] = X.copy()  # no sentence keeps its whole batch in memory
            if state is not None:
                state.h[:, :, order], state.c[:, :, order] = after
        return layers

    def initial_state(self, n_rows: int) -> LSTMState:
        """The zero state of n_rows sentences, with the axes that LSTMState names."""
        lstm, new = self.options.lstm, self.encoder.char_embed.new_zeros
        shape = (2, lstm.n_layers, n_rows)
        return LSTMState(new(*shape, lstm.projection_dim), new(*shape, lstm.dim))
