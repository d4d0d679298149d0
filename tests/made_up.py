"""A small language for tests of pretraining: whoever is named decides what follows,
so that a model that has learned it is far better than word frequencies."""

import random

FACTS = [
    "the dog barks at the moon",
    "the cat drinks cold milk",
    "a pilot flies over high mountains",
    "a baker sells warm bread daily",
    "my sister reads old letters",
    "our teacher writes with chalk",
    "some sailors sing about storms",
    "no farmer sleeps until noon",
]
# A sentence of a treebank.
CONLLU = """\
# text = Anna liest das Buch.
1\tAnna\tAnna\tPROPN\tNE\tNumber=Sing\t2\tnsubj\t_\t_
2\tliest\tlesen\tVERB\tVVFIN\t_\t0\troot\t_\t_
3\tdas\tder\tDET\tART\t_\t4\tdet\t_\t_
4\tBuch\tBuch\tNOUN\tNN\tNumber=Sing\t2\tobj\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t$.\t_\t2\tpunct\t_\t_

"""
TINY_MODEL = {
    "lstm": {"dim": 32, "projection_dim": 12, "n_layers": 2, "cell_clip": 3,
             "proj_clip": 3, "use_skip_connections": True},
    "char_cnn": {"activation": "relu", "filters": [[1, 8], [2, 8], [3, 8]],
                 "embedding": {"dim": 4}, "n_highway": 1, "n_characters": 262,
                 "max_characters_per_token": 16},
}  # fmt: skip


def text(n_documents, seed=0):
    """Documents of two to four tokenized sentences, one per line."""
    rng = random.Random(seed)
    documents = []
    for _ in range(n_documents):
        facts = [rng.choice(FACTS) for _ in range(rng.randint(2, 4))]
        documents.append("".join(f"{fact} .\n" for fact in facts))
    return "\n".join(documents)


def pretrain_config(train, dev=None, **training):
    """A config of a tiny model as a dict: 4 rows of 10 tokens for 8 steps. On a CPU,
    where equal runs are equal to the last bit."""
    optimizer = {"learn_rate": 0.02, "warmup_steps": 5, "decay": "none"}
    return {
        "paths": {"train": str(train), "dev": None if dev is None else str(dev)},
        "nlp": {"lang": "en"},
        "corpus": {"tokenized": True},
        "vocabulary": {"min_count": 1},
        "model": TINY_MODEL,
        "training": {
            "rows": 4, "unroll_steps": 10, "state": "zero", "max_tokens": 320,
            "dropout": 0.1, "device": "cpu", "log_steps": 1, "eval_steps": 4,
            "checkpoint_steps": 3, "optimizer": optimizer,
            "softmax": {"kind": "full"}, **training,
        },
    }  # fmt: skip
