import math
from typing import Any, Dict, Iterator, NamedTuple

import numpy as np
import torch
from spacy.training.batchers import minibatch_by_words
from torch import Tensor

from ..bilm import BiLM
from ..bilm.tuning import SORTED_TOKENS
from .corpus import Corpus
from .distributed import ALONE, Processes
from .language_model import log_likelihoods
from .softmax import Softmax
from .vocabulary import EOS_ID, UNK_ID, Floats1d, Ints


class Perplexity(NamedTuple):
    """By the exact full softmax. A token is a word or the end of its sentence (for the
    backward direction, its beginning). Words outside the vocabulary count as
    <UNK>, which is easy to predict: compare only models with a similar `n_unknown`.
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
        files = {name: p.to_dict() for name, p in found.pop("files").items()}
        return {**found, "files": files} if files else found


def evaluate_files(
    bilm: BiLM,
    softmax: Softmax,
    files: Dict[str, Corpus],
    *,
    state: str,
    max_tokens: int = 0,
    processes: Processes = ALONE,
) -> Perplexity:
    """Held-out perplexity of files, given by their names, and of them as one text.

    state (str): "zero": each sentence by itself, as the plugin runs the model.
        "carried": along each document, as the paper trains it.
    max_tokens (int): Of each file read about this many tokens or fewer, documents
        spread over all of it; 0 reads all.
    """
    sums = {}
    for name, corpus in files.items():
        texts = _texts(corpus, state, max_tokens, processes)
        mine = _sum(bilm, softmax, corpus, texts).to(processes.device)
        sums[name] = processes.sum(mine).cpu().numpy()
    found = _perplexity(np.sum(list(sums.values()), axis=0))
    if len(files) == 1:
        return found
    return found._replace(files={name: _perplexity(x) for name, x in sums.items()})


def _sum(bilm: BiLM, softmax: Softmax, corpus: Corpus, texts: Iterator[Ints]) -> Tensor:
    """Negative log likelihoods of the forward and of the backward direction, tokens,
    unknown words and characters of some texts of a corpus.
    """
    sums = torch.zeros(5, dtype=torch.float64)
    # Sorted by length within each part.
    for part in minibatch_by_words(texts, SORTED_TOKENS):
        for found in log_likelihoods(bilm, softmax, part, corpus.words):
            sums[:2] -= torch.from_numpy(found.sum(axis=1))
        sums[2] += sum(map(len, part))
        sums[3] += sum((corpus.in_vocabulary(text) == UNK_ID).sum() for text in part)
    counts = corpus.counts
    per_token = (counts.characters + counts.sentences) / len(corpus.tokens)
    sums[4] = sums[2] * per_token
    return sums


def _perplexity(sums: Floats1d) -> Perplexity:
    *nats, n_tokens, n_unknown, n_characters = sums.tolist()
    # Infinite where a run has diverged
    with np.errstate(over="ignore"):
        forward, backward = (float(np.exp(x / n_tokens)) for x in nats)
    bits = sum(nats) / 2 / n_characters / math.log(2)
    counts = int(n_tokens), int(n_unknown), round(n_characters)
    return Perplexity(forward, backward, (forward + backward) / 2, bits, *counts)


def _texts(
    corpus: Corpus, state: str, max_tokens: int, processes: Processes
) -> Iterator[Ints]:
    """Sentences or whole documents, each of which starts from the zero state."""
    every = math.ceil(len(corpus.tokens) / max_tokens) if max_tokens else 1
    for i in range(0, corpus.n_documents, every)[processes.rank :: processes.n]:
        document = corpus.document(i)
        if state == "carried":
            yield document
        else:
            yield from np.split(document, np.flatnonzero(document == EOS_ID)[:-1] + 1)
