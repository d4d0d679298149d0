"""The bundled models, which `pretrain` wrote, in simple_elmo.

pip install simple_elmo tensorflow-cpu tf-keras
"""

import importlib.util

import numpy as np
import pytest

from spacy_elmo.bilm import BiLM
from spacy_elmo.weights import resolve

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("simple_elmo") is None,
    reason="simple_elmo is not installed",
)
SENTENCES = [
    "Their play opens in Boston next May :".split(),
    "She will present the record to both of her old neighbours , he says .".split(),
    ["play"],
]


@pytest.mark.parametrize("name", ["en_elmo_sm", "en_elmo_md"])
def test_what_pretrain_writes_runs_there(name, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    import tensorflow as tf  # type: ignore[import-not-found]
    from simple_elmo import ElmoModel  # type: ignore[import-not-found]

    # Its variables are in the default graph, where the other model's are.
    tf.compat.v1.reset_default_graph()
    model = ElmoModel()
    model.load(str(resolve(name)), max_batch_size=len(SENTENCES))
    # Its state is carried from batch to batch; the first one starts from zeros.
    found = model.get_elmo_vectors(SENTENCES, warmup=False, layers="all")
    wanted, _ = BiLM.from_path(resolve(name)).encode(SENTENCES)
    for i, layers in enumerate(wanted):
        theirs = found[i].transpose(1, 0, 2)[: len(layers)]
        np.testing.assert_allclose(theirs, layers, rtol=1e-5, atol=1e-5)
