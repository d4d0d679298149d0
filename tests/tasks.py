"""Small examples with every kind of annotation, from the sample corpus, and the
components that can learn them with a listener as their tok2vec layer."""

from pathlib import Path

from spacy.tokens import Doc
from spacy.training import Example

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "assets" / "sample_train.iob"
TASKS = [
    "tagger", "morphologizer", "trainable_lemmatizer", "senter", "parser", "ner",
    "textcat", "textcat_multilabel", "spancat", "span_finder",
]  # fmt: skip


def listener_config(upstream="elmo", **arguments):
    name = "spacy_elmo.ELMoListener.v1"
    return {"@architectures": name, "upstream": upstream, **arguments}


def add_task(nlp, task, name=None, tok2vec=None, **arguments):
    config = {"model": {"tok2vec": tok2vec or listener_config(**arguments)}}
    if task == "parser":
        config["min_action_freq"] = 1
    return nlp.add_pipe(task, name=name or task, config=config)


def make_examples(nlp, n=20):
    lines = SAMPLE.read_text(encoding="utf8").splitlines()[:n]
    return [make_example(nlp, line) for line in lines]


def make_example(nlp, line):
    words, tags, ents = zip(*(token.rsplit("|", 2) for token in line.split()))
    doc = Doc(
        nlp.vocab,
        words=words,
        tags=tags,
        pos=["PUNCT" if word in ".,?!" else "X" for word in words],
        morphs=[f"Case={tag[0]}" if tag[0].isalpha() else "" for tag in tags],
        lemmas=[word.lower() for word in words],
        heads=[max(0, i - 1) for i in range(len(words))],
        deps=["ROOT", *["after"] * (len(words) - 1)],
        ents=ents,
    )
    question = words[-1] == "?"
    doc.cats = {"question": float(question), "other": float(not question)}
    doc.spans["sc"] = list(doc.ents)
    return Example(Doc(nlp.vocab, words=words), doc)
