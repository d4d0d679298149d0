"""What the six tasks share: the corpus, a pipeline component whose loss is a PyTorch
module's, and a BiLSTM with highway connections.

`Doc.user_data["given"]` is what a task gives beside the words (predicates, mentions,
where the question ends); `Doc.user_data["gold"]`, of the reference only, is what it
asks for.
"""

import random
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np
import srsly
import torch
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import registry
from thinc.api import ArgsKwargs, Model, PyTorchShim, PyTorchWrapper, xp2torch
from thinc.types import Floats2d
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

Tok2Vec = Model[List[Doc], List[Floats2d]]


@registry.readers("experiments.Corpus.v1")
def create_corpus(
    path: Optional[Path], limit: int = 0, seed: int = 0
) -> Callable[[Language], Iterator[Example]]:
    """Read a .spacy file, or a random part of `limit` of its Docs."""
    docs: List[Doc] = []  # kept from one evaluation to the next

    def read(nlp: Language) -> Iterator[Example]:
        if path is None:
            raise ValueError("Give the data by --paths.train and --paths.dev.")
        if not docs:
            docs.extend(DocBin().from_disk(path).get_docs(nlp.vocab))
            if 0 < limit < len(docs):
                docs[:] = random.Random(seed).sample(docs, limit)
        for reference in docs:
            yield Example(to_predict(reference), reference)

    return read


def to_predict(reference: Doc) -> Doc:
    """A Doc of the same words and sentences, with what the task gives."""
    doc = Doc(
        reference.vocab,
        words=[token.text for token in reference],
        spaces=[bool(token.whitespace_) for token in reference],
        sent_starts=[token.is_sent_start for token in reference],
    )
    if "given" in reference.user_data:
        doc.user_data["given"] = reference.user_data["given"]
    return doc


class Net(nn.Module):
    """A task's module, which is built when widths and labels are known. `forward` gets
    the token vectors x of each Doc, ELMo for the output (or None), the Docs, and in
    training the reference Docs: it gives the loss then, else what it predicts.
    """

    def build(self, width: int, output_width: int, labels: List[str]) -> None:
        raise NotImplementedError


def TorchTask(net: Net, embed: Tok2Vec, output: Optional[Tok2Vec]) -> Model[Any, Any]:
    """Vectors of the tokens >> a task's module.

    embed (Model[List[Doc], List[Floats2d]]): x, or [x; ELMo].
    output (Model[List[Doc], List[Floats2d]]): ELMo once more, for the output of the
        module's encoder (Peters et al. 2018, section 3.3).
    RETURNS (Model[Tuple[List[Doc], Optional[List[Doc]]], Any]): From the Docs and, in
        training, their references to the loss; else to a prediction for each Doc.
    """
    vectors = [embed] if output is None else [embed, output]
    wrapped = PyTorchWrapper(net, convert_inputs=to_torch)
    wrapped.shims[:] = [AveragedShim(net)]
    build = net.build
    return Model(
        "torch-task", forward, layers=[*vectors, wrapped], attrs={"build": build}
    )


class AveragedShim(PyTorchShim):
    """A shim that takes the averages of the optimizer, as Thinc's layers do. Thinc 8.3
    looks for them under other names than those under which it trains the parameters.
    """

    def finish_update(self, optimizer: Any) -> None:
        super().finish_update(optimizer)
        for p in self._model.parameters():
            # As Thinc leaves it, it keeps the tensor that it was made of, and that the
            # one before: gigabytes of memory that cannot be returned.
            p.data = p.data.clone()

    @contextmanager
    def use_params(self, params: Dict[Any, Any]) -> Iterator[None]:
        named = [((self.id, key), p) for key, p in self._model.named_parameters()]
        kept = [(key, p, p.data) for key, p in named if key in params]
        for key, p, _ in kept:
            p.data = xp2torch(params[key])
        try:
            yield
        finally:
            for _, p, data in kept:
                p.data = data


def forward(model: Model[Any, Any], batch: Any, is_train: bool) -> Any:
    docs, golds = batch
    *layers, net = model.layers
    found = [layer(docs, is_train) for layer in layers]
    vectors = [list(Y) for Y, _ in found]
    Y, backprop_net = net((vectors, docs, golds), is_train)

    def backprop(d_loss: Any) -> None:
        for (_, back), dX in zip(found, backprop_net(d_loss)):
            back(dX)

    return Y, backprop


def to_torch(model: Any, batch: Any, is_train: bool) -> Any:
    vectors, docs, golds = batch
    xs = [[torch.tensor(x, requires_grad=is_train) for x in v] for v in vectors]
    args = (xs[0], xs[1] if len(xs) > 1 else None, docs, golds)

    def from_torch(_: ArgsKwargs) -> List[List[Floats2d]]:
        return [[gradient(x).numpy() for x in v] for v in xs]

    return ArgsKwargs(args=args, kwargs={}), from_torch


def gradient(x: Tensor) -> Tensor:
    """Zeros for a Doc of which the module has read nothing."""
    return torch.zeros(x.shape) if x.grad is None else x.grad


class Task(TrainablePipe):
    """A component whose loss and predictions are a module's. A task says what its
    labels are, what to do with a prediction, and how to score it.
    """

    def __init__(self, vocab: Any, model: Model[Any, Any], name: str):
        self.vocab, self.model, self.name = vocab, model, name
        self.cfg: Dict[str, Any] = {"labels": [], "widths": []}

    @property
    def labels(self) -> Tuple[str, ...]:
        return tuple(self.cfg["labels"])

    def find_labels(self, golds: Iterable[Doc]) -> Iterable[str]:
        return {doc.user_data["gold"] for doc in golds}

    def annotate(self, doc: Doc, found: Any) -> None:
        doc.user_data["found"] = found

    def initialize(
        self, get_examples: Callable[[], Iterable[Example]], *, nlp: Any = None
    ) -> None:
        examples = list(get_examples())
        layers = self.model.layers[:-1]
        for layer in layers:
            layer.initialize(X=[eg.predicted for eg in examples[:100]])
        self.cfg["labels"] = sorted(self.find_labels(eg.reference for eg in examples))
        self.cfg["widths"] = [layer.get_dim("nO") for layer in layers]
        self.build()

    def build(self) -> None:
        width, output_width = [*self.cfg["widths"], 0][:2]
        self.model.attrs["build"](width, output_width, self.labels)

    def predict(self, docs: Iterable[Doc]) -> Any:
        """What the module finds in each Doc; None of one without words."""
        docs = list(docs)
        read = [doc for doc in docs if len(doc)]
        found = iter(self.model.predict((read, None)) if read else [])
        return [next(found) if len(doc) else None for doc in docs]

    def set_annotations(self, docs: Iterable[Doc], found: Any) -> None:
        for doc, its in zip(docs, found):
            if its is not None:
                self.annotate(doc, its)

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Any = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """`drop`, which is [training] dropout, changes nothing: the module and the
        listeners have rates of their own.
        """
        losses = {} if losses is None else losses
        pairs = [(eg.predicted, eg.reference) for eg in examples if len(eg.predicted)]
        if not pairs:
            return losses
        docs, golds = (list(part) for part in zip(*pairs))
        loss, backprop = self.model.begin_update((docs, golds))
        backprop(np.ones((), dtype="f"))
        losses[self.name] = losses.get(self.name, 0.0) + float(loss)
        if sgd is not None:
            self.finish_update(sgd)
        return losses

    def from_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> "Task":
        # The module must have its shapes before its weights.
        self.cfg.update(srsly.read_json(Path(path) / "cfg"))
        self.build()
        super().from_disk(path, exclude=exclude)
        return self

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "Task":
        self.cfg.update(srsly.json_loads(srsly.msgpack_loads(data)["cfg"]))
        self.build()
        super().from_bytes(data, exclude=exclude)
        return self


class HighwayBiLSTM(nn.Module):
    """A BiLSTM of several layers with highway connections between them (He et al. 2017)
    and one dropout mask for all time steps of a sequence.

    width, hidden (int): Of the input, and of each direction.
    """

    def __init__(self, width: int, hidden: int, depth: int = 1, dropout: float = 0.0):
        super().__init__()
        # One layer per direction: PyTorch's packed sequences take twice the time of
        # padded ones to train on a CPU, and padding has to come last in both.
        self.lstms = nn.ModuleList(
            nn.ModuleList(nn.LSTM(n, hidden, batch_first=True) for _ in range(2))
            for n in [width] + [2 * hidden] * (depth - 1)
        )
        self.gates = nn.ModuleList(
            nn.Linear(4 * hidden, 2 * hidden) for _ in range(depth - 1)
        )
        self.dropout = dropout

    def forward(self, x: Tensor, lengths: List[int]) -> Tensor:
        """(n, time, width) and the length of each row -> (n, time, 2 * hidden)."""
        backward = reversal(lengths, x.shape[1])
        for j, (left, right) in enumerate(self.lstms):
            dropped = locked_dropout(x, self.dropout, self.training)
            from_right = reorder(right(reorder(dropped, backward))[0], backward)
            h = torch.cat([left(dropped)[0], from_right], dim=2)
            if j:
                gate = torch.sigmoid(self.gates[j - 1](torch.cat([h, x], dim=2)))
                h = gate * h + (1 - gate) * x
            x = h
        return locked_dropout(x, self.dropout, self.training)


def reversal(lengths: List[int], n: int) -> Tensor:
    """Time steps of each row in reverse, and padding where it is: (n_rows, n)."""
    t, length = torch.arange(n)[None], torch.tensor(lengths)[:, None]
    return torch.where(t < length, length - 1 - t, t)


def reorder(x: Tensor, t: Tensor) -> Tensor:
    return x.gather(1, t[:, :, None].expand_as(x))


def locked_dropout(x: Tensor, rate: float, is_train: bool) -> Tensor:
    """The same mask for all time steps of a row (Gal and Ghahramani 2016)."""
    if not is_train or not rate:
        return x
    keep = torch.full((x.shape[0], 1, x.shape[2]), 1 - rate).bernoulli()
    return x * keep / (1 - rate)


def pad(rows: List[Tensor]) -> Tuple[Tensor, List[int], Tensor]:
    """RETURNS: Rows of one length, their lengths, and the mask of what is there."""
    lengths = [len(row) for row in rows]
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return pad_sequence(rows, batch_first=True), lengths, mask


def given(doc: Doc) -> Any:
    if "given" not in doc.user_data:
        raise ValueError(
            "What this task is told of a Doc is not in doc.user_data['given']: "
            f"{doc.text[:50]!r}. data.py says what it is for each task."
        )
    return doc.user_data["given"]


def in_two(rows: List[Tensor], docs: List[Doc]) -> Tuple[List[Tensor], List[Tensor]]:
    """Cut Docs of two texts, where `given` is the length of the first."""
    cuts = [given(doc) for doc in docs]
    first = [row[:cut] for row, cut in zip(rows, cuts)]
    return first, [row[cut:] for row, cut in zip(rows, cuts)]


def classifier(width: int, hidden: int, n_labels: int, dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Dropout(dropout), nn.Linear(width, hidden), nn.ReLU(),
        nn.Dropout(dropout), nn.Linear(hidden, n_labels),
    )  # fmt: skip
