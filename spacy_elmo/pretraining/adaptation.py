"""Training that starts from a trained model (Peters et al. 2018, appendix A.1)."""

from dataclasses import asdict
from typing import List, Sequence

import torch

from ..bilm import BiLM, Options
from ..errors import Errors, TrainingError
from ..weights import resolve
from .language_model import AnySoftmax, has_softmax, read_softmax, vocabulary_beside
from .softmax import Softmax
from .vocabulary import UNK, read_vocabulary


def load_start(
    bilm: BiLM, softmax: AnySoftmax, words: Sequence[str], name_or_path: str
) -> None:
    """Set a biLM and its softmax to those of a trained model.

    Words that both vocabularies have keep their rows of the softmax; new ones start
    from the row of <UNK>, as which the model has read them. An adaptive softmax is
    taken over where vocabulary and clusters are the same. A model without a softmax,
    such as the official ones, leaves the softmax as it is.

    bilm (BiLM): Changed in place.
    softmax (Softmax or AdaptiveSoftmax): Changed in place.
    words (Sequence[str]): The words of the softmax, in its order.
    name_or_path (str): The model: a registered name or a path.
    RAISES (MissingWeights): If there is none.
    RAISES (TrainingError): If its geometry is not that of the config.
    RAISES (WeightsError, CorpusError): If its files are broken.
    """
    path = resolve(name_or_path)
    trained = BiLM.from_path(path)
    different = _differences(trained.options, bilm.options)
    if different:
        raise TrainingError(Errors.E060.format(path=path, what=", ".join(different)))
    bilm.load_state_dict(trained.state_dict())
    if not has_softmax(path):
        return
    old = read_softmax(path, bilm.options.lstm.projection_dim)
    vocabulary_path = vocabulary_beside(path)
    old_words = read_vocabulary(vocabulary_path)
    if len(old_words) != old.vocab_size:
        problem = f"has {len(old_words)} words, but the softmax {old.vocab_size}"
        raise TrainingError(Errors.E051.format(path=vocabulary_path, problem=problem))
    if isinstance(old, Softmax) and isinstance(softmax, Softmax):
        _copy_rows(old, softmax, old_words, words)
    elif old_words == list(words) and _have_one_shape(old, softmax):
        softmax.load_state_dict(old.state_dict())


def _copy_rows(
    old: Softmax, new: Softmax, old_words: Sequence[str], words: Sequence[str]
) -> None:
    known = {word: i for i, word in enumerate(old_words)}
    unknown = known[UNK]
    rows = torch.tensor([known.get(word, unknown) for word in words])
    with torch.no_grad():
        new.weight.copy_(old.weight[rows])
        new.bias.copy_(old.bias[rows])


def _have_one_shape(old: AnySoftmax, new: AnySoftmax) -> bool:
    return {k: v.shape for k, v in old.state_dict().items()} == {
        k: v.shape for k, v in new.state_dict().items()
    }


def _differences(found: Options, wanted: Options) -> List[str]:
    """Settings of the geometry that differ, with both values."""
    return [
        f"{section}.{name} is {ours[name]}, there {theirs[name]}"
        for section, theirs, ours in (
            ("char_cnn", asdict(found.char_cnn), asdict(wanted.char_cnn)),
            ("lstm", asdict(found.lstm), asdict(wanted.lstm)),
        )
        for name in theirs
        # 261 and 262 are the same table of characters (see Options).
        if name != "n_characters" and theirs[name] != ours[name]
    ]
