import numpy as np
import spacy
from spacy.kb import InMemoryLookupKB
from spacy.tokens import Doc, Span
from spacy.training import Example
from tasks import listener_config

# The entity linker builds a layer as wide as its tok2vec before anything is
# initialized: a listener alone does not know its width by then.
TOK2VEC = {
    "@architectures": "spacy.Tok2Vec.v2",
    "embed": {
        "@architectures": "spacy_elmo.EmbedWithELMo.v1",
        "width": 16,
        "embed": {
            "@architectures": "spacy.MultiHashEmbed.v2", "width": 16,
            "attrs": ["NORM"], "rows": [50], "include_static_vectors": False,
        },
        "elmo": listener_config(),
    },
    "encode": {
        "@architectures": "spacy.MaxoutWindowEncoder.v2", "width": 16, "depth": 1,
        "window_size": 1, "maxout_pieces": 2,
    },
}  # fmt: skip
PLACES = {"Q1": "river", "Q2": "money"}


def make_example(nlp, entity):
    words = ["The", "bank", "has", PLACES[entity], "."]
    doc = Doc(nlp.vocab, words=words, sent_starts=[True, *[False] * 4])
    doc.ents = [Span(doc, 1, 2, label="PLACE", kb_id=entity)]
    return Example(Doc(nlp.vocab, words=words), doc)


def load_kb(vocab):
    kb = InMemoryLookupKB(vocab, entity_vector_length=4)
    for i, entity in enumerate(PLACES):
        kb.add_entity(entity, freq=10, entity_vector=np.eye(4)[i].tolist())
    kb.add_alias("bank", list(PLACES), [0.5, 0.5])
    return kb


def test_an_entity_linker_learns_and_loads_with_a_listener(nlp, tmp_path):
    """One name for two things, which nothing but the context tells apart."""
    nlp.add_pipe("sentencizer", first=True)
    model = {"@architectures": "spacy.EntityLinker.v2", "tok2vec": TOK2VEC}
    linker = nlp.add_pipe(
        "entity_linker",
        config={"model": model, "entity_vector_length": 4, "incl_prior": False,
                "use_gold_ents": True},
    )  # fmt: skip
    linker.set_kb(load_kb)
    examples = [make_example(nlp, entity) for entity in PLACES] * 4
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(30):
        losses = nlp.update(examples, sgd=optimizer, annotates=["sentencizer"])
    assert losses["entity_linker"] < 0.5
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    for pipeline in (nlp, loaded):
        scores = pipeline.evaluate(examples[:2])
        assert scores["nel_micro_f"] == 1.0
