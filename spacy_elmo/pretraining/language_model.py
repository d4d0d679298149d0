"""A biLM with its softmax. In a file the biLM has the official layout, and the softmax
a group of its own, which readers of that layout ignore.
"""

import math
from numbers import Integral
from pathlib import Path
from typing import Iterable, List, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt
import torch

from ..bilm import BiLM
from ..bilm.batching import Ints1d, cut_by_length, make_reading
from ..bilm.characters import BOS, EOS, as_words
from ..bilm.kernels import no_autocast
from ..bilm.official_format import check_shape, open_hdf5, read_dataset
from ..bilm.paths import find_files
from ..bilm.tuning import MAX_BATCH_TOKENS
from ..errors import Errors, WeightsError, require, unusable
from ..storage import beside
from ..weights import resolve
from .softmax import Softmax
from .vocabulary import (
    BOS_ID,
    EOS_ID,
    SPECIAL,
    UNK,
    UNK_ID,
    VOCABULARY,
    read_vocabulary,
)
from .windows import directions

Floats2d = npt.NDArray[np.float64]

WEIGHT = "softmax/W"
BIAS = "softmax/b"


def write_model(
    bilm: BiLM, softmax: Softmax, output: Path, *, dtype: str = "float32"
) -> None:
    """Write options.json and weights.hdf5, in which the softmax is `softmax/W`
    (vocabulary, projection) and `softmax/b` (vocabulary,).
    """
    state = {WEIGHT: softmax.weight, BIAS: softmax.bias}
    extra = {k: v.detach().float().cpu().numpy() for k, v in state.items()}
    bilm.save(output, dtype=dtype, extra=extra)


def has_softmax(path: Union[str, Path]) -> bool:
    """Whether a model was written by `write_model`; the official ones were not."""
    with open_hdf5(find_files(path)) as (_, shapes):
        return WEIGHT in shapes and BIAS in shapes


def read_softmax(path: Union[str, Path], width: int) -> Softmax:
    """Read the softmax of a model that `write_model` wrote.

    width (int): The projection of the biLM.
    RETURNS (Softmax): Without gradients.
    RAISES (WeightsError): If there is none, or if its shapes are wrong.
    """
    files = find_files(path)
    with open_hdf5(files) as (h5, shapes):
        if WEIGHT not in shapes or BIAS not in shapes:
            raise WeightsError(Errors.E054.format(path=files.weights_name))
        weight = read_dataset(h5, WEIGHT, files)
        bias = read_dataset(h5, BIAS, files)
    wanted = (len(bias) if bias.ndim == 1 else 0, width)
    check_shape(WEIGHT, weight.shape, wanted, files)
    softmax = Softmax(*weight.shape)
    with torch.no_grad():
        softmax.weight.copy_(torch.from_numpy(weight))
        softmax.bias.copy_(torch.from_numpy(bias))
    return softmax.requires_grad_(False)


class LanguageModel:
    """A biLM with its softmax: the probability of each word given those before it, and
    given those after it. Words outside the vocabulary have the probability of
    `<UNK>`: see `is_oov`.

    words (List[str]): The words of the softmax, `<S>`, `</S>` and `<UNK>` first.
    """

    def __init__(self, bilm: BiLM, softmax: Softmax, words: List[str]):
        self.bilm = bilm
        self.softmax = softmax
        self.words = words
        self._ids = {word: i for i, word in enumerate(words)}

    @classmethod
    def from_path(
        cls, weights: Union[str, Path], *, vocab_path: Union[str, Path, None] = None
    ) -> "LanguageModel":
        """Load a model that `spacy elmo pretrain` wrote.

        weights (str or Path): Its name or path.
        vocab_path (str or Path): The words of its softmax, by default vocab.txt
            beside it; for a .zip it must be given.
        RAISES (WeightsError): If the model cannot be read, or has no softmax, as the
            official ones.
        RAISES (CorpusError): If the vocabulary is missing or of another softmax.
        """
        path = resolve(weights)
        bilm = BiLM.from_path(path)
        softmax = read_softmax(path, bilm.options.lstm.projection_dim)
        vocab_path = Path(vocab_path or beside(path, VOCABULARY))
        if not vocab_path.is_file():
            problem = "is not there. Give the file with the softmax's words (--vocab)"
            raise unusable(vocab_path, problem)
        words = read_vocabulary(vocab_path)
        if len(words) != softmax.vocab_size:
            problem = f"has {len(words)} words, but the softmax {softmax.vocab_size}"
            raise unusable(vocab_path, problem)
        return cls(bilm, softmax, words)

    def is_oov(self, word: str) -> bool:
        """Whether a word is outside the vocabulary and counts as `<UNK>`."""
        return word in SPECIAL or word not in self._ids

    def score(
        self, sentences: Iterable[Iterable[str]], *, boundaries: bool = False
    ) -> List[Floats2d]:
        """The surprisal of each word in bits, -log2 p, by the exact full softmax.

        sentences (Iterable[Iterable[str]]): Lists of words. Each is read by itself.
        boundaries (bool): With a first row for `<S>`, which only the backward
            direction predicts, and a last one for `</S>`, which only the forward
            direction does; the other value of these rows is 0. The columns then sum up
            to the negative log-likelihoods of the sentence, as `spacy elmo evaluate`
            has them.
        RETURNS (List[Floats2d]): For each sentence (n_words, 2), or (n_words + 2, 2)
            with boundaries. Column 0: given the words before. Column 1: given the
            words after.
        RAISES (ValueError): If a sentence is no list of strings.
        """
        ids = dict(self._ids)  # words outside the vocabulary are numbered after it
        texts = [
            np.array([*(ids.setdefault(word, len(ids)) for word in sentence), EOS_ID])
            for sentence in _without_boundaries(sentences)
        ]
        found = []
        for nats in log_likelihoods(self.bilm, self.softmax, texts, list(ids)):
            bits = np.zeros((nats.shape[1] + 1, 2))
            bits[1:, 0] = -nats[0] / math.log(2)
            bits[:-1, 1] = -nats[1, ::-1] / math.log(2)
            found.append(bits if boundaries else bits[1:-1])
        return found

    @torch.no_grad()
    def substitutes(
        self, sentence: Sequence[str], i: int, n: int = 10
    ) -> List[Tuple[str, float]]:
        """The likeliest words at a position, ignoring the word that is there.

        The words before and those after are taken as independent given the word
        between, so that by Bayes p(w | before, after) is proportional to
        p(w | before) p(w | after) / p(w). A vocabulary has no counts, but the order of
        frequencies: p(w) is proportional to log((k + 2) / (k + 1)) at rank k, as for
        the sampled softmax.

        sentence (Sequence[str]): The words.
        i (int): The position, from 0; or from -1, counted from the end.
        n (int): How many words.
        RETURNS (List[Tuple[str, float]]): Words of the vocabulary, the likeliest
            first, with ln p(w | before, after), which is normalized over the
            vocabulary without the special words.
        RAISES (IndexError): If the sentence has no such position.
        RAISES (ValueError): If n is negative or no whole number, or if the sentence is
            no list of strings.
        """
        require(isinstance(n, Integral) and n >= 0, "n", "a number of words", n)
        (words,) = _without_boundaries([sentence])
        if not -len(words) <= i < len(words):
            wanted = f"a position in the {len(words)} words"
            raise IndexError(Errors.E038.format(name="i", wanted=wanted, found=i))
        i %= len(words)
        ranks = torch.arange(len(self.words), device=self.softmax.bias.device)
        joint = -torch.log(torch.log1p(1 / (ranks + 1.0)))
        before, after = [BOS, *words[:i]], [EOS, *words[:i:-1]]
        with no_autocast(joint):
            for d, read in enumerate((before, after)):
                x = self.bilm.encode_words(read)
                layers, _ = self.bilm.run_direction(d, x, [1] * len(read))
                logits = self.softmax.weight @ layers[-1][-1] + self.softmax.bias
                joint += logits.log_softmax(0)
        joint[: len(SPECIAL)] = -torch.inf
        scores, ids = joint.log_softmax(0).topk(min(n, len(ranks) - len(SPECIAL)))
        return [(self.words[k], p) for k, p in zip(ids.tolist(), scores.tolist())]


def _without_boundaries(sentences: Iterable[Iterable[str]]) -> List[List[str]]:
    """Special words of a text are no boundaries: they count as <UNK>.

    RAISES (ValueError): If a sentence is no list of strings.
    """
    found = as_words(sentences)
    return [[UNK if word in SPECIAL else word for word in s] for s in found]


@torch.no_grad()
def log_likelihoods(
    bilm: BiLM, softmax: Softmax, texts: Sequence[Ints1d], words: Sequence[str]
) -> List[Floats2d]:
    """The log likelihood of each token by the exact full softmax, in nats. Each text
    starts from the zero state. Texts of like length are read together.

    texts (Sequence[Ints1d]): Ids of words, each sentence closed by `</S>`. Those
        beyond the softmax are its `<UNK>`.
    words (Sequence[str]): The word of each id.
    RETURNS (List[Floats2d]): For each text (2, n_tokens), in the order in which each
        direction reads them.
    """
    distinct = np.unique(np.concatenate([[BOS_ID], *texts]))
    table = bilm.encode_words([words[i] for i in distinct])
    found = [np.empty((2, len(text))) for text in texts]
    for batch in cut_by_length(list(map(len, texts)), MAX_BATCH_TOKENS):
        both = [directions(texts[row]) for row in batch]
        ends = np.cumsum([len(texts[row]) for row in batch])
        for d in range(2):
            rows = [np.searchsorted(distinct, read[d]).tolist() for read, _ in both]
            layers, _ = bilm.run_reading(d, table, make_reading(rows, share=False))
            predicted = np.concatenate([targets[d] for _, targets in both])
            known = np.where(predicted < softmax.vocab_size, predicted, UNK_ID)
            on_device = torch.from_numpy(known).to(table.device, torch.int64)
            nats = softmax.log_likelihood(layers[-1], on_device).cpu().numpy()
            for row, part in zip(batch, np.split(nats, ends[:-1])):
                found[row][d] = part
    return found
