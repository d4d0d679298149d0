import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..bilm import BiLM
from ..bilm.batching import batch_sizes, packed_positions
from ..bilm.lstm import LSTMState
from .corpus import Corpus
from .distributed import Processes
from .softmax import Softmax
from .vocabulary import EOS_ID, UNK_ID
from .windows import Directions, directions

Ints = npt.NDArray[Any]

# A window of a batch: at most so many time steps, and about so many tokens.
MAX_STEPS = 512
BATCH_TOKENS = 8192
# Text is sorted by length, so that the rows of a batch end together; so many tokens
# at a time.
SORTED_TOKENS = 1 << 18
# Distinct words that go through the token encoder at a time.
BATCH_WORDS = 4096


class Perplexity(NamedTuple):
    """By the exact full softmax. A token is a word or the end of its sentence (the
    begin of it, for the backward direction). Words outside the vocabulary count as
    <UNK>, and cost no more than that: compare only where `n_unknown` is alike.
    `average` is the mean of both directions, as the paper reports it;
    `bits_per_character` is of the average likelihood, over the characters of the
    words and one more a token. `files` has that of each file where there are several.
    """

    forward: float
    backward: float
    average: float
    bits_per_character: float
    n_tokens: int
    n_unknown: int
    n_characters: int
    files: Dict[str, "Perplexity"] = {}

    def to_dict(self) -> Dict[str, Any]:
        found = self._asdict()
        del found["files"]
        if self.files:
            found["files"] = {name: p.to_dict() for name, p in self.files.items()}
        return found


def join(files: Dict[str, Perplexity]) -> Perplexity:
    """The perplexity of several files as one text."""
    parts = list(files.values())
    if len(parts) == 1:
        return parts[0]
    n_tokens = sum(p.n_tokens for p in parts)
    n_characters = sum(p.n_characters for p in parts)
    forward, backward = (
        math.exp(sum(math.log(getattr(p, name)) * p.n_tokens for p in parts) / n_tokens)
        for name in ("forward", "backward")
    )
    return Perplexity(
        forward, backward, (forward + backward) / 2,
        sum(p.bits_per_character * p.n_characters for p in parts) / n_characters,
        n_tokens, sum(p.n_unknown for p in parts), n_characters, files,
    )  # fmt: skip


@torch.no_grad()
def evaluate(
    bilm: BiLM,
    softmax: Softmax,
    corpus: Corpus,
    *,
    state: str,
    max_tokens: int = 0,
    processes: Optional[Processes] = None,
) -> Perplexity:
    """Held-out perplexity.

    bilm (BiLM): The language model.
    softmax (Softmax): Its softmax.
    corpus (Corpus): The text.
    state (str): "zero": each sentence by itself, as the plugin runs the model.
        "carried": along each document, as the paper trains it.
    max_tokens (int): Read about so many tokens, documents spread over all of the
        text; 0 reads all.
    processes (Processes): Those that share the documents.
    RETURNS (Perplexity): Perplexity of both directions.
    """
    processes = processes or Processes()
    # Log likelihood of both directions, tokens, unknown words.
    totals = torch.zeros(4, dtype=torch.float64)
    for texts in _batches(_texts(corpus, state, max_tokens, processes)):
        both = [directions(text) for text in texts]
        for text in texts:
            totals[2] += len(text)
            totals[3] += int((corpus.in_vocabulary(text) == UNK_ID).sum())
        for d in range(2):
            totals[d] += _log_likelihood(bilm, softmax, corpus, both, d)
    found = processes.sum(totals.to(processes.device)).cpu().numpy()
    n_tokens, n_unknown = int(found[2]), int(found[3])
    nats = -found[:2] / n_tokens
    forward, backward = np.exp(nats).tolist()
    counts = corpus.counts
    per_token = (counts.characters + counts.sentences) / len(corpus.tokens)
    n_characters = round(n_tokens * per_token)
    bits = float(nats.mean()) * n_tokens / n_characters / math.log(2)
    average = (forward + backward) / 2
    return Perplexity(
        forward, backward, average, bits, n_tokens, n_unknown, n_characters
    )


def _texts(
    corpus: Corpus, state: str, max_tokens: int, processes: Processes
) -> Iterator[Ints]:
    """Sentences or whole documents, each of which starts from the zero state."""
    every = max(1, len(corpus.tokens) // max_tokens) if max_tokens else 1
    for i in range(0, corpus.n_documents, every)[processes.rank :: processes.n]:
        document = np.asarray(corpus.document(i))
        if state == "carried":
            yield document
        else:
            yield from np.split(document, np.flatnonzero(document == EOS_ID)[:-1] + 1)


def _batches(texts: Iterator[Ints]) -> Iterator[List[Ints]]:
    """Each text once, in batches by falling length."""
    sorting: List[Ints] = []
    size = 0
    for text in texts:
        sorting.append(text)
        size += len(text)
        if size >= SORTED_TOKENS:
            yield from _cut(sorting)
            sorting, size = [], 0
    yield from _cut(sorting)


def _cut(texts: List[Ints]) -> Iterator[List[Ints]]:
    batch: List[Ints] = []
    size = 0
    for text in sorted(texts, key=len, reverse=True):
        n = min(len(text), MAX_STEPS)
        if batch and size + n > BATCH_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += n
    if batch:
        yield batch


def _log_likelihood(
    bilm: BiLM, softmax: Softmax, corpus: Corpus, texts: List[Directions], d: int
) -> float:
    """The log likelihood of texts of falling length in one direction, in nats. Long
    texts go window by window, with the state carried: memory is bounded.
    """
    total = 0.0
    state: Optional[List[LSTMState]] = None
    for start in range(0, texts[0].inputs.shape[1], MAX_STEPS):
        window = slice(start, start + MAX_STEPS)
        inputs = [t.inputs[d, window] for t in texts if t.inputs.shape[1] > start]
        targets = [t.targets[d, window] for t in texts if t.inputs.shape[1] > start]
        lengths = [len(row) for row in inputs]
        # The rows that go on are the first ones.
        n = len(lengths)
        if state is not None:
            state = [LSTMState(layer.h[:n], layer.c[:n]) for layer in state]
        x = _token_vectors(bilm, corpus, _pack(inputs, lengths))
        layers, state = bilm.run_direction(d, x, batch_sizes(lengths), state)
        wanted = corpus.in_vocabulary(_pack(targets, lengths))
        ids = torch.from_numpy(wanted).to(x.device)
        total += softmax.log_likelihood(layers[-1], ids).double().sum().item()
    return total


def _pack(rows: List[Ints], lengths: List[int]) -> Ints:
    packed = np.empty(sum(lengths), dtype=np.int64)
    for row, where in zip(rows, packed_positions(lengths)):
        packed[where] = row
    return packed


def _token_vectors(bilm: BiLM, corpus: Corpus, words: Ints) -> Tensor:
    distinct, where = np.unique(words, return_inverse=True)
    device = bilm.encoder.char_embed.device
    characters = torch.from_numpy(corpus.characters[distinct]).to(device)
    parts = torch.split(characters, BATCH_WORDS)
    table = torch.cat([bilm.encoder(part) for part in parts])
    return table[torch.from_numpy(where.reshape(-1)).to(device)]
