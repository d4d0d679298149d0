import math
from typing import Any, Dict, Iterator, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import torch
from spacy.training.batchers import minibatch_by_words

from ..bilm import BiLM
from .corpus import Corpus
from .distributed import Processes
from .language_model import log_likelihoods
from .softmax import Softmax
from .vocabulary import EOS_ID, UNK_ID

Ints = npt.NDArray[Any]

# Texts are read by length; so many tokens of them are sorted at a time.
SORTED_TOKENS = 1 << 18


class Perplexity(NamedTuple):
    """By the exact full softmax. A token is a word or the end of its sentence (the
    begin of it, for the backward direction). Words outside the vocabulary count as
    <UNK>, and cost no more than that: compare only where `n_unknown` is alike.
    `average` is the mean of both directions, as the paper reports it;
    `bits_per_character` is of the average likelihood, over the characters of the
    words and one more per token. `files` has that of each file where there are several.
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


def evaluate_files(
    bilm: BiLM, softmax: Softmax, files: Dict[str, Corpus], **how: Any
) -> Perplexity:
    """Held-out perplexity of several files, and of them as one text. Arguments as for
    `evaluate`.
    """
    found = {name: evaluate(bilm, softmax, text, **how) for name, text in files.items()}
    parts = list(found.values())
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
        n_tokens, sum(p.n_unknown for p in parts), n_characters, found,
    )  # fmt: skip


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
    texts = _texts(corpus, state, max_tokens, processes)
    # Sorted by length within so many tokens.
    for part in minibatch_by_words(texts, SORTED_TOKENS):
        for found in log_likelihoods(
            bilm, softmax, part, corpus.characters.__getitem__
        ):
            totals[:2] += torch.from_numpy(found.sum(axis=1))
        totals[2] += sum(map(len, part))
        totals[3] += sum((corpus.in_vocabulary(text) == UNK_ID).sum() for text in part)
    sums = processes.sum(totals.to(processes.device)).cpu().numpy()
    n_tokens, n_unknown = int(sums[2]), int(sums[3])
    nats = -sums[:2] / n_tokens
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
