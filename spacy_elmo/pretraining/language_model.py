"""A biLM with its softmax. In a file the biLM has the official layout, and the softmax
a group of its own, which readers of that layout ignore.
"""

import math
from itertools import chain
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..bilm import BiLM
from ..bilm.batching import batch_sizes, packed_positions
from ..bilm.characters import BOS, EOS
from ..bilm.files import find_files
from ..bilm.hdf5 import open_hdf5, read_dataset
from ..bilm.official_format import write_bilm
from ..errors import Errors, WeightsError, unusable
from ..weights import resolve
from .softmax import Softmax
from .vocabulary import BOS_ID, EOS_ID, SPECIAL, UNK, UNK_ID, read_vocabulary

Floats2d = npt.NDArray[np.float64]
Ints1d = npt.NDArray[np.int64]

WEIGHT = "softmax/W"
BIAS = "softmax/b"
VOCABULARY = "vocab.txt"
# Words of a batch of sentences that are scored.
BATCH_TOKENS = 8192


def write_model(
    bilm: BiLM, softmax: Softmax, output: Path, *, dtype: str = "float32"
) -> None:
    """Write options.json and weights.hdf5.

    bilm (BiLM): The biLM.
    softmax (Softmax): Stored as `softmax/W` (vocabulary, projection) and `softmax/b`
        (vocabulary,).
    output (Path): Directory.
    dtype (str): "float32" or "float16".
    """
    state = {WEIGHT: softmax.weight, BIAS: softmax.bias}
    extra = {
        k: v.detach().float().cpu().numpy().astype(dtype) for k, v in state.items()
    }
    write_bilm(bilm, output, dtype=dtype, extra=extra)


def has_softmax(path: Union[str, Path]) -> bool:
    """Whether a model was written by `write_model`; the official ones were not."""
    files = find_files(path)
    with open_hdf5(files.weights, files.weights_name) as h5:
        return WEIGHT in h5 and BIAS in h5


def read_softmax(path: Union[str, Path], width: int) -> Softmax:
    """Read the softmax of a model that `write_model` wrote.

    path (str or Path): A directory, .zip or .hdf5 file.
    width (int): The projection of the biLM.
    RETURNS (Softmax): The softmax, without gradients.
    RAISES (WeightsError): If there is none, or if its shapes are wrong.
    """
    files = find_files(path)
    name = files.weights_name
    with open_hdf5(files.weights, name) as h5:
        if WEIGHT not in h5 or BIAS not in h5:
            raise WeightsError(Errors.E054.format(path=name))
        weight = read_dataset(h5, WEIGHT, name)
        bias = read_dataset(h5, BIAS, name)
    wanted = (len(bias) if bias.ndim == 1 else 0, width)
    if weight.shape != wanted:
        raise WeightsError(
            Errors.E009.format(
                path=name, name=WEIGHT, found=weight.shape, wanted=wanted,
                options=files.options_name,
            )
        )  # fmt: skip
    softmax = Softmax(*weight.shape)
    with torch.no_grad():
        softmax.weight.copy_(torch.from_numpy(weight))
        softmax.bias.copy_(torch.from_numpy(bias))
    return softmax.requires_grad_(False)


def vocabulary_beside(path: Path) -> Path:
    """Where the vocabulary of a model is: in its directory."""
    return (path if path.is_dir() else path.parent) / VOCABULARY


class LanguageModel:
    """A biLM with its softmax: the probability of each word given those before it, and
    given those after it. Words outside the vocabulary count as `<UNK>`, and cost no
    more than that: see `is_oov`.

    bilm (BiLM): The biLM.
    softmax (Softmax): Its softmax.
    words (List[str]): The words of the softmax, `<S>`, `</S>` and `<UNK>` first.
    """

    def __init__(self, bilm: BiLM, softmax: Softmax, words: List[str]):
        self.bilm = bilm
        self.softmax = softmax
        self.words = words
        self._ids = {word: i for i, word in enumerate(words)}

    @classmethod
    def from_path(
        cls, weights: Union[str, Path], *, vocab_path: Optional[Path] = None
    ) -> "LanguageModel":
        """Load a model that `spacy elmo pretrain` wrote.

        weights (str or Path): Its name or path.
        vocab_path (Path): The words of its softmax, by default vocab.txt beside it.
        RETURNS (LanguageModel): The model.
        RAISES (WeightsError): If the model cannot be read, or has no softmax, as the
            official ones.
        RAISES (CorpusError): If the vocabulary is missing or of another softmax.
        """
        path = resolve(weights)
        bilm = BiLM.from_path(path)
        softmax = read_softmax(path, bilm.options.lstm.projection_dim)
        vocab_path = vocab_path or vocabulary_beside(path)
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

    @torch.no_grad()
    def score(
        self, sentences: Sequence[Sequence[str]], *, boundaries: bool = False
    ) -> List[Floats2d]:
        """The surprisal of each word in bits, -log2 p, by the exact full softmax.

        sentences (Sequence[Sequence[str]]): Lists of words. Each is read by itself.
        boundaries (bool): With a first row for `<S>`, which only the backward
            direction predicts, and a last one for `</S>`, which only the forward
            direction does; the other value of these rows is 0. The columns then sum up
            to the negative log-likelihoods of the sentence, as `spacy elmo evaluate`
            has them.
        RETURNS (List[Floats2d]): For each sentence (n_words, 2), or (n_words + 2, 2)
            with boundaries. Column 0: given the words before. Column 1: given the
            words after.
        """
        found = [np.zeros((len(sentence) + 2, 2)) for sentence in sentences]
        for direction, h, targets, places in self._read(sentences):
            nats = self.softmax.log_likelihood(h, targets).double().cpu().numpy()
            for row, place in places.items():
                bits = -nats[place] / math.log(2)
                if direction == 0:
                    found[row][1:, 0] = bits
                else:
                    found[row][:-1, 1] = bits[::-1]
        return found if boundaries else [surprisal[1:-1] for surprisal in found]

    @torch.no_grad()
    def substitutes(
        self, sentence: Sequence[str], i: int, n: int = 10
    ) -> List[Tuple[str, float]]:
        """The likeliest words at a position, whatever stands there.

        The words before and those after are taken as independent given the word
        between, so that by Bayes p(w | before, after) is proportional to
        p(w | before) p(w | after) / p(w). A vocabulary has no counts, but the order of
        frequencies: p(w) is log((k + 2) / (k + 1)) at rank k, as for the sampled
        softmax.

        sentence (Sequence[str]): The words.
        i (int): The position, from 0.
        n (int): How many words.
        RETURNS (List[Tuple[str, float]]): Words of the vocabulary, the likeliest
            first, with ln p(w | before, after), which is normalized over the
            vocabulary without the special words.
        RAISES (IndexError): If the sentence has no such position.
        """
        i = range(len(sentence))[i]
        ranks = torch.arange(len(self.words), device=self.softmax.bias.device)
        joint = -torch.log(torch.log1p(1 / (ranks + 1.0)))
        for direction, h, _, places in self._read([sentence]):
            step = i if direction == 0 else len(sentence) - 1 - i
            logits = self.softmax.weight @ h[places[0][step]] + self.softmax.bias
            joint += logits.log_softmax(0)
        joint[: len(SPECIAL)] = -torch.inf
        scores, ids = joint.log_softmax(0).topk(min(n, len(ranks) - len(SPECIAL)))
        return [(self.words[k], p) for k, p in zip(ids.tolist(), scores.tolist())]

    def _read(
        self, sentences: Sequence[Sequence[str]]
    ) -> Iterator[Tuple[int, Tensor, Tensor, Dict[int, Ints1d]]]:
        """Run each direction over batches of sentences.

        YIELDS (Tuple[int, Floats2d, Ints1d, Dict[int, Ints1d]]): The direction, the
            outputs of its top layer, the words that they predict (the sentence and the
            boundary after it, in the order of reading), and where those of each
            sentence stand.
        """
        for batch in _by_length(sentences):
            # A "<S>" of the text is no boundary.
            words = [
                [UNK if word in SPECIAL else word for word in sentences[row]]
                for row in batch
            ]
            index = {BOS: BOS_ID, EOS: EOS_ID}
            for word in chain(*words):
                index.setdefault(word, len(index))
            table = self.bilm.encode_words(list(index))
            lengths = [len(sentence) + 1 for sentence in words]
            places = packed_positions(lengths)
            for direction, (first, last) in enumerate([(BOS, EOS), (EOS, BOS)]):
                inputs, targets = np.empty((2, sum(lengths)), dtype=np.int64)
                for sentence, place in zip(words, places):
                    read = [first, *sentence[:: 1 - 2 * direction], last]
                    inputs[place] = [index[word] for word in read[:-1]]
                    targets[place] = [self._ids.get(word, UNK_ID) for word in read[1:]]
                x = table[torch.from_numpy(inputs).to(table.device)]
                layers, _ = self.bilm.run_direction(direction, x, batch_sizes(lengths))
                ids = torch.from_numpy(targets).to(table.device)
                yield direction, layers[-1], ids, dict(zip(batch, places))


def _by_length(sentences: Sequence[Sequence[str]]) -> Iterator[List[int]]:
    """Batches of sentences by falling length."""
    batch: List[int] = []
    n_tokens = 0
    for row in sorted(range(len(sentences)), key=lambda row: -len(sentences[row])):
        if isinstance(sentences[row], str):
            raise ValueError(Errors.E022.format(i=row, type="string"))
        batch.append(row)
        n_tokens += len(sentences[row]) + 1
        if n_tokens >= BATCH_TOKENS:
            yield batch
            batch, n_tokens = [], 0
    if batch:
        yield batch
