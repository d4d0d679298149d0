"""What the tasks need and spaCy does not have: a classifier of pairs of spans, marked
tokens, scores, and a mix without gamma. For `spacy train --code`.
"""

import random
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np
from spacy import registry
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.scorer import PRFScore
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example, validate_examples
from thinc.api import Linear, Maxout, Model, chain, get_array_module
from thinc.types import Floats2d, Ints1d

Scores = List[Floats2d]
MARK = "MARK"


@registry.readers("experiments.Corpus.v1")
def create_corpus(
    path: Optional[Path], limit: int = 0, seed: int = 0
) -> Callable[[Language], Iterator[Example]]:
    """Read a .spacy file, or a random part of `limit` of its Docs. The Docs to predict
    get the words, and what a task gives beside them: pairs with their sentences, and
    marked tokens (as entities, so that an embedding of ENT_TYPE sees them).
    """
    docs: List[Doc] = []

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
    words = [token.text for token in reference]
    starts = None
    if "pairs" in reference.user_data:
        starts = [bool(token.is_sent_start) for token in reference]
    spaces = [bool(token.whitespace_) for token in reference]
    doc = Doc(reference.vocab, words=words, spaces=spaces, sent_starts=starts)
    if "pairs" in reference.user_data:
        doc.user_data["pairs"] = reference.user_data["pairs"]
    marked = [ent.start for ent in reference.ents if ent.label_ == MARK]
    doc.ents = [Span(doc, i, i + 1, label=MARK) for i in marked]
    return doc


@registry.architectures("experiments.SpanPairs.v1")
def build_span_pairs(
    tok2vec: Model[List[Doc], List[Floats2d]],
    hidden_width: int,
    nO: Optional[int] = None,
) -> Model[List[Doc], Scores]:
    """Scores of the labels for each pair of a Doc. A span is [mean; max] of its
    tokens; a pair is [a; b; |a - b|; a * b], as in models of inference.
    """
    width = tok2vec.get_dim("nO") if tok2vec.has_dim("nO") else None
    inner = Model("span-pairs", pairs_forward, dims={"nI": width})
    classifier = chain(
        Maxout(hidden_width, normalize=True, dropout=0.0), Linear(nO, hidden_width)
    )
    model: Model[List[Doc], Scores] = Model(
        "span-pair-scores", forward, init=initialize,
        layers=[tok2vec, inner, classifier], dims={"nO": nO},
        refs={"tok2vec": tok2vec, "output": classifier.layers[1]},
    )  # fmt: skip
    return model


def forward(
    model: Model[List[Doc], Scores], docs: List[Doc], is_train: bool
) -> Tuple[Scores, Callable[[Scores], Any]]:
    tok2vec, pairs, classifier = model.layers
    vectors, back_vectors = tok2vec(docs, is_train)
    features, back_features = pairs((docs, vectors), is_train)
    flat, back_flat = classifier(features, is_train)
    lengths = [len(doc.user_data["pairs"]) for doc in docs]
    cuts = np.cumsum(lengths)[:-1].tolist()

    def backprop(d_scores: Scores) -> Any:
        d_flat = model.ops.xp.concatenate(d_scores)
        return back_vectors(back_features(back_flat(d_flat)))

    return model.ops.xp.split(flat, cuts), backprop


def initialize(
    model: Model[List[Doc], Scores], X: Optional[List[Doc]] = None, Y: Any = None
) -> None:
    tok2vec, pairs, classifier = model.layers
    n_out = model.get_dim("nO")
    tok2vec.initialize(X)
    features = pairs.predict((X, tok2vec.predict(X)))
    classifier.layers[1].set_dim("nO", n_out, force=True)
    classifier.initialize(features, model.ops.alloc2f(len(features), n_out))


def pairs_forward(
    model: Model[Any, Floats2d], inputs: Any, is_train: bool
) -> Tuple[Floats2d, Callable[[Floats2d], List[Floats2d]]]:
    docs, vectors = inputs
    ops, xp = model.ops, model.ops.xp
    X = xp.concatenate(vectors)
    starts = np.cumsum([0, *(len(doc) for doc in docs)])
    pairs = [
        [start + i for i in pair]
        for doc, start in zip(docs, starts)
        for pair in doc.user_data["pairs"]
    ]
    spans = [tuple(p[:2]) for p in pairs] + [tuple(p[2:]) for p in pairs]
    index: Dict[Any, int] = {span: i for i, span in enumerate(dict.fromkeys(spans))}
    tokens = xp.asarray([t for lo, hi in index for t in range(lo, hi)], dtype="i")
    lengths: Ints1d = ops.asarray1i([hi - lo for lo, hi in index])
    of_pair = xp.asarray([index[s] for s in spans], dtype="i").reshape(2, -1)
    gathered = X[tokens]
    mean = ops.reduce_mean(gathered, lengths)
    largest, which = ops.reduce_max(gathered, lengths)
    spans_of = xp.concatenate([mean, largest], axis=1)  # (n_spans, 2 * width)
    a, b = spans_of[of_pair[0]], spans_of[of_pair[1]]
    features = xp.concatenate([a, b, xp.abs(a - b), a * b], axis=1)

    def backprop(dY: Floats2d) -> List[Floats2d]:
        d_a, d_b, d_minus, d_times = xp.split(dY, 4, axis=1)
        sign = xp.sign(a - b)
        d_a = d_a + d_minus * sign + d_times * b
        d_b = d_b - d_minus * sign + d_times * a
        d_spans = ops.alloc2f(*spans_of.shape)
        ops.scatter_add(d_spans, of_pair[0], d_a)
        ops.scatter_add(d_spans, of_pair[1], d_b)
        d_mean, d_max = (xp.ascontiguousarray(d) for d in xp.split(d_spans, 2, axis=1))
        d_gathered = ops.backprop_reduce_mean(d_mean, lengths)
        d_gathered += ops.backprop_reduce_max(d_max, which, lengths)
        dX = ops.alloc2f(*X.shape)
        ops.scatter_add(dX, tokens, d_gathered)
        return list(xp.split(dX, starts[1:-1].tolist()))

    return features, backprop


@Language.factory("span_pairs")
def make_span_pairs(
    nlp: Language, name: str, model: Model[List[Doc], Scores], scorer: Any
) -> "SpanPairs":
    return SpanPairs(nlp.vocab, model, name, scorer)


class SpanPairs(TrainablePipe):
    """Labels pairs of spans, doc.user_data["pairs"], by a softmax over the labels that
    the training data has. Puts the probabilities of each pair in
    doc.user_data["probabilities"].
    """

    def __init__(self, vocab: Any, model: Any, name: str, scorer: Any):
        self.vocab, self.model, self.name = vocab, model, name
        self.scorer = partial(scorer, pipe=self)
        self.cfg: Dict[str, Any] = {"labels": []}

    @property
    def labels(self) -> Tuple[str, ...]:
        return tuple(self.cfg["labels"])

    def initialize(self, get_examples: Any, *, nlp: Any = None) -> None:
        examples = list(get_examples())
        found = {x for eg in examples for x in eg.reference.user_data["labels"]}
        self.cfg["labels"] = sorted(found)
        self.model.set_dim("nO", len(found), force=True)
        self.model.initialize(X=[eg.predicted for eg in examples[:10]])

    def predict(self, docs: Iterable[Doc]) -> Scores:
        return [softmax(scores) for scores in self.model.predict(list(docs))]

    def set_annotations(self, docs: Iterable[Doc], scores: Scores) -> None:
        for doc, probabilities in zip(docs, scores):
            doc.user_data["probabilities"] = self.model.ops.to_numpy(probabilities)

    def update(self, examples: Any, *, drop: float = 0.0, sgd: Any = None,
               losses: Any = None) -> Dict[str, float]:  # fmt: skip
        losses = {} if losses is None else losses
        validate_examples(examples, "SpanPairs.update")
        scores, backprop = self.model.begin_update([eg.predicted for eg in examples])
        n = max(1, sum(len(s) for s in scores))
        gradients = []
        for eg, s in zip(examples, scores):
            gold = [self.labels.index(x) for x in eg.reference.user_data["labels"]]
            gradient = softmax(s)
            gradient[np.arange(len(gold)), gold] -= 1
            gradients.append(gradient / n)
        backprop(gradients)
        loss = float(sum((g * g).sum() for g in gradients)) * n
        losses[self.name] = losses.get(self.name, 0.0) + loss
        if sgd is not None:
            self.finish_update(sgd)
        return losses


def softmax(scores: Floats2d) -> Floats2d:
    xp = get_array_module(scores)
    exp = xp.exp(scores - scores.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


@registry.scorers("experiments.pairs.v1")
def make_pairs_scorer() -> Callable[..., Dict[str, float]]:
    return score_pairs


@registry.scorers("experiments.ranking.v1")
def make_ranking_scorer() -> Callable[..., Dict[str, float]]:
    return score_ranking


@registry.scorers("experiments.roles.v1")
def make_roles_scorer() -> Callable[..., Dict[str, float]]:
    return score_roles


def score_pairs(
    examples: Iterable[Example], pipe: SpanPairs, **_: Any
) -> Dict[str, float]:
    """Accuracy, and F of the label "yes"."""
    right, n, yes = 0, 0, PRFScore()
    for eg in examples:
        found = eg.predicted.user_data["probabilities"].argmax(axis=1)
        names = [pipe.labels[i] for i in found]
        for i, (name, gold) in enumerate(zip(names, eg.reference.user_data["labels"])):
            right, n = right + (name == gold), n + 1
            sets = ({i} if x == "yes" else set() for x in (name, gold))
            yes.score_set(*sets)
    return {"pairs_acc": right / max(1, n), "pairs_f": yes.fscore}


def score_ranking(
    examples: Iterable[Example], pipe: SpanPairs, **_: Any
) -> Dict[str, float]:
    """The share of Docs whose likeliest "yes" is one."""
    hits = []
    for eg in examples:
        column = eg.predicted.user_data["probabilities"][:, pipe.labels.index("yes")]
        hits.append(eg.reference.user_data["labels"][column.argmax()] == "yes")
    return {"ranked_first": float(np.mean(hits))}


def score_roles(examples: Iterable[Example], **_: Any) -> Dict[str, float]:
    """F of the arguments, by span and role."""
    prf = PRFScore()
    for eg in examples:
        found, gold = (
            set(spans_of([token.tag_ for token in doc])) for doc in (eg.x, eg.y)
        )
        prf.score_set(found, gold)
    return {"roles_p": prf.precision, "roles_r": prf.recall, "roles_f": prf.fscore}


def spans_of(tags: List[str]) -> Iterator[Tuple[int, int, str]]:
    """Spans of BIO tags; the predicate's own tags are none."""
    start, role = 0, None
    for i, tag in enumerate([*tags, "O"]):
        if role is not None and tag != f"I-{role}":
            yield start, i, role
            role = None
        if tag[:2] == "B-" or (tag[:2] == "I-" and role is None):
            start, role = i, tag[2:]
        if role == "V":
            role = None


@registry.architectures("experiments.WithoutGamma.v1")
def build_without_gamma(elmo: Model[List[Doc], List[Floats2d]]) -> Any:
    """A listener whose gamma is and stays 1 (appendix A.2)."""
    (mix,) = (node for node in elmo.walk() if node.name == "elmo-mix")

    def run(model: Any, docs: List[Doc], is_train: bool) -> Any:
        Y, backprop = elmo(docs, is_train)

        def without(dY: Any) -> Any:
            dX = backprop(dY)
            if mix.has_grad("delta"):
                mix.set_grad("delta", model.ops.alloc1f(1))
            return dX

        return Y, without

    def start(model: Any, X: Any = None, Y: Any = None) -> None:
        elmo.initialize(X, Y)
        mix.attrs["gamma_0"] = 1.0

    return Model(
        "without-gamma", run, init=start, layers=[elmo], dims={"nO": None},
        refs={"listener": elmo.get_ref("listener")},
    )  # fmt: skip
