import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from tasks import add_task, make_examples

from spacy_elmo.errors import MissingWeights
from spacy_elmo.weights import en_elmo_sm

TEXT = "Last year Eleanor wrote a short play for Chicago."


def assert_same(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def load(nlp):
    """What nlp.to_bytes wrote, in a pipeline that cannot find its weights."""
    config = nlp.config.copy()
    for name in nlp.pipe_names:
        if nlp.get_pipe_meta(name).factory == "elmo":
            config["components"][name]["model"]["weights"] = "no such weights"
    return spacy.blank(nlp.lang).from_config(config).from_bytes(nlp.to_bytes())


def weights_file(directory):
    return directory / "elmo" / "weights.hdf5"


def inode(directory):
    return weights_file(directory).stat().st_ino


def test_works_at_once_without_initialize(nlp):
    doc = nlp(TEXT)
    assert doc._.elmo.shape == (10, 3, 12)
    assert doc._.elmo.dtype == np.float32
    assert nlp("")._.elmo.shape == (0, 3, 12)
    for piped in nlp.pipe([TEXT, "", TEXT], batch_size=2):
        assert_same(piped._.elmo, doc._.elmo[: len(piped)])


@pytest.mark.skipif(not en_elmo_sm().is_dir(), reason="no bundled weights")
def test_the_bundled_model_needs_no_arguments():
    nlp = spacy.blank("en")
    elmo = nlp.add_pipe("elmo")
    doc = nlp(TEXT)
    shape = (elmo.model.get_dim("nL"), elmo.model.get_dim("nO"))
    assert doc[6]._.elmo.shape == shape
    # The same word in another sense: its context changes all but layer 0
    other = nlp("They play on the street.")[1]._.elmo
    assert_same(other[0], doc[6]._.elmo[0])
    assert not np.allclose(other[1:], doc[6]._.elmo[1:], atol=1e-2)


def test_spans_and_tokens_have_their_part_of_the_doc(nlp):
    doc = nlp(TEXT)
    np.testing.assert_array_equal(doc[3]._.elmo, doc._.elmo[3])
    np.testing.assert_array_equal(doc[2:5]._.elmo, doc._.elmo[2:5])
    blank = nlp.make_doc(TEXT)
    assert blank._.elmo is blank[3]._.elmo is blank[2:5]._.elmo is None


@pytest.mark.parametrize(
    "read",
    [
        "import spacy; from spacy.tokens import DocBin; from spacy.vocab import Vocab\n"
        "docs = DocBin().from_bytes(data).get_docs(Vocab())",
        "import pickle; docs = pickle.loads(data)",
    ],
)
def test_a_fresh_process_reads_vectors_without_a_pipeline(nlp, read, tmp_path):
    docs = [nlp(TEXT)]
    data = DocBin(store_user_data=True, docs=docs).to_bytes()
    (tmp_path / "docs").write_bytes(pickle.dumps(docs) if "pickle" in read else data)
    script = f"import sys; data = open(sys.argv[1], 'rb').read(); {read}\n"
    script += "print([doc[3]._.elmo.shape for doc in docs])"
    command = [sys.executable, "-c", script, str(tmp_path / "docs")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "[(3, 12)]\n", done.stderr


def test_extensions_that_are_there_are_left_alone():
    script = (
        "from spacy.tokens import Doc; Doc.set_extension('elmo', default='mine')\n"
        "import spacy; print(spacy.blank('xx')('text')._.elmo)"
    )
    command = [sys.executable, "-W", "error::UserWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "mine\n", done.stderr


def test_a_file_of_macos_beside_the_weights_is_not_taken_for_them(nlp, tmp_path):
    nlp.to_disk(tmp_path / "first")
    (tmp_path / "first" / "elmo" / "._weights.hdf5").write_bytes(b"metadata of macOS")
    spacy.load(tmp_path / "first").to_disk(tmp_path / "second")
    assert_same(spacy.load(tmp_path / "second")(TEXT)._.elmo, nlp(TEXT)._.elmo)


@pytest.mark.parametrize(
    "layers",
    [3, np.zeros((4, 3, 12)), np.zeros((2, 12)), [[["a"]]] * 2, [[1.0], 2.0],
     torch.ones(2, 3, 12, requires_grad=True)],
)  # fmt: skip
def test_nothing_but_layers_of_its_tokens_can_be_assigned(layers, nlp):
    doc = nlp("One two")
    with pytest.raises(
        ValueError, match=r"ELMO038.*None or numbers of shape \(2, L \+ 1, width"
    ):
        doc._.elmo = layers
    assert doc._.elmo.shape == (2, 3, 12)


def test_elmo_takes_no_model_of_another_kind(bilm_config):
    inline = {"@architectures": "spacy_elmo.ELMo.v1", "bilm": bilm_config()}
    with pytest.raises(ValueError, match=r"ELMO038.*spacy_elmo\.BiLM\.v1"):
        spacy.blank("en").add_pipe("elmo", config={"model": inline})


def test_parts_of_the_layers_cannot_be_assigned(nlp):
    doc = nlp("One two")
    for part in (doc[0], doc[:1]):
        with pytest.raises(ValueError, match=r"ELMO043.*doc\._\.elmo"):
            part._.elmo = np.zeros((3, 12))


def test_white_space_has_zero_rows(nlp):
    doc = nlp("One\n\ntwo ")
    assert doc._.elmo.any(axis=(1, 2)).tolist() == [not t.is_space for t in doc]


def test_after_retokenization_there_is_an_error_and_no_neighbors_vector(nlp):
    doc = nlp(TEXT)
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[5:7])
    for part in (doc, doc[5], doc[0:2]):
        with pytest.raises(ValueError, match="ELMO030.* 10 rows.* 9 tokens"):
            _ = part._.elmo
    doc._.elmo = None
    assert doc[5]._.elmo is None
    assert nlp.get_pipe("elmo")(doc)[5]._.elmo.shape == (3, 12)


@pytest.mark.parametrize("how", ["bytes", "disk", "pickle"])
@pytest.mark.parametrize("is_used", [False, True])
def test_a_saved_pipeline_needs_the_path_of_its_weights_no_more(
    how, is_used, bilm_config, calm_weights, tmp_path
):
    weights = shutil.copytree(calm_weights, tmp_path / "weights")
    nlp, wanted = spacy.blank("xx"), spacy.blank("xx")
    nlp.add_pipe("elmo", config={"model": bilm_config(weights)})
    wanted.add_pipe("elmo", config={"model": bilm_config(calm_weights)})
    if is_used:
        nlp(TEXT)
    if how == "disk":
        nlp.to_disk(tmp_path / "saved")
        shutil.rmtree(weights)
        loaded = spacy.load(tmp_path / "saved")
    elif how == "bytes":
        loaded = load(nlp)
    else:
        pickled = pickle.dumps(nlp)
        if is_used:  # else there is nothing to take along but the path
            shutil.rmtree(weights)
        loaded = pickle.loads(pickled)
    assert_same(loaded(TEXT)._.elmo, wanted(TEXT)._.elmo)
    assert loaded.get_pipe("elmo").model.get_dim("nO") == 12


def test_a_pipeline_without_its_bilm_says_so(nlp, bilm_config, tmp_path):
    add_task(nlp, "tagger")
    nlp.initialize(lambda: make_examples(nlp))
    wanted = [token.tag_ for token in nlp("She made a play.")]
    nlp.to_disk(tmp_path, exclude=["elmo"])
    with pytest.raises(MissingWeights, match="ELMO045.*weights.hdf5.*first=True"):
        spacy.load(tmp_path)
    alone = spacy.load(tmp_path, exclude=["elmo"])
    alone.add_pipe("elmo", first=True, config={"model": bilm_config()})
    assert [token.tag_ for token in alone("She made a play.")] == wanted


def test_other_weights_for_a_saved_pipeline_are_not_taken_silently(
    bilm_config, calm_weights, other_weights, tmp_path
):
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", config={"model": bilm_config(calm_weights)})
    nlp.to_disk(tmp_path)
    other = {"components.elmo.model.weights": str(other_weights)}
    with pytest.warns(UserWarning, match=rf"W009.*{other_weights}.*{calm_weights}"):
        loaded = spacy.load(tmp_path, config=other)
    assert_same(loaded(TEXT)._.elmo, nlp(TEXT)._.elmo)
    loaded.to_disk(tmp_path / "again")  # which does not say what it was asked for
    config = spacy.load(tmp_path / "again").config["components"]["elmo"]
    assert config["model"]["weights"] == str(calm_weights)
    with pytest.warns(UserWarning, match=rf"W009.*{other_weights}.*{calm_weights}"):
        blank = spacy.blank("xx")
        blank.add_pipe("elmo", config={"model": bilm_config(other_weights)})
        blank.from_bytes(nlp.to_bytes())
    assert_same(blank(TEXT)._.elmo, nlp(TEXT)._.elmo)


@pytest.mark.parametrize(
    "name, config",
    [("my_bilm", '[components.elmo.model]\nweights = "x"'), ("elmo", "x = ${no.such}")],
)
def test_a_config_beside_weights_that_is_no_pipelines_is_nothing(
    name, config, nlp, calm_weights, tmp_path
):
    (tmp_path / "config.cfg").write_text(config)
    weights = shutil.copytree(calm_weights, tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp.get_pipe("elmo").from_disk(weights)


def test_what_is_excluded_is_not_saved(nlp, tmp_path):
    elmo = nlp.get_pipe("elmo")
    elmo.to_disk(tmp_path, exclude=["model"])
    assert list(tmp_path.iterdir()) == []
    elmo.from_disk(tmp_path, exclude=["model"])
    assert len(elmo.to_bytes(exclude=["model"])) < 10


def test_what_is_excluded_is_not_read(bilm_config, nlp, tmp_path):
    saved = nlp.get_pipe("elmo")
    saved.to_disk(tmp_path)
    unread = spacy.blank("xx")
    config = bilm_config("no such weights")
    elmo = unread.add_pipe("elmo", config={"model": config})
    elmo.from_bytes(saved.to_bytes(), exclude=["model"])
    elmo.from_disk(tmp_path, exclude=["model"])
    assert not elmo.model.has_dim("nO")


def test_weights_without_a_license_do_not_get_that_of_others(
    bilm_config, nlp, calm_weights, tmp_path
):
    licensed = shutil.copytree(calm_weights, tmp_path / "licensed")
    # In whatever encoding: it goes along as it is
    (licensed / "meta.json").write_bytes('{"license": "© mine"}'.encode("latin1"))
    first = spacy.blank("xx")
    first.add_pipe("elmo", config={"model": bilm_config(licensed)})
    for pipeline, has_license in ((first, True), (nlp, False)):
        pipeline.to_disk(tmp_path / "pipeline")
        assert (tmp_path / "pipeline/elmo/meta.json").is_file() is has_license


def test_an_archive_does_not_get_the_license_of_its_folder(
    bilm_config, calm_weights, tmp_path
):
    archive = shutil.make_archive(str(tmp_path / "7"), "zip", calm_weights)
    (tmp_path / "meta.json").write_text('{"license": "of something else"}')
    nlp = spacy.blank("xx")
    nlp.add_pipe("elmo", config={"model": bilm_config(archive)})
    nlp.to_disk(tmp_path / "pipeline")
    assert not (tmp_path / "pipeline" / "elmo" / "meta.json").exists()


@pytest.mark.parametrize("is_relative", [True, False])
def test_weights_behind_a_symbolic_link_are_saved_themselves(
    is_relative, nlp, tmp_path
):
    """As in the cache of Hugging Face's hub."""
    nlp.to_disk(tmp_path / "first")
    weights = tmp_path / "first" / "elmo" / "weights.hdf5"
    for folder in ("blobs", "a"):
        (tmp_path / folder).mkdir()
    blob = weights.rename(tmp_path / "blobs" / "1f0c")
    weights.symlink_to(Path("../../blobs/1f0c") if is_relative else blob)
    spacy.load(tmp_path / "first").to_disk(tmp_path / "a" / "second")
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(tmp_path / "blobs")
    second = spacy.load(tmp_path / "a" / "second")
    assert_same(second(TEXT)._.elmo, nlp(TEXT)._.elmo)


def test_checkpoints_share_one_file_while_the_weights_stand(nlp, tmp_path):
    first, second, third = (tmp_path / name for name in "abc")
    nlp.to_disk(first)
    nlp.to_bytes()  # has a file of its own on the way
    nlp.to_disk(second)
    spacy.load(second).to_disk(third)
    assert inode(first) == inode(second) == inode(third)
    # To where it is already, and to where it was loaded from
    nlp.to_disk(first)
    spacy.load(third).to_disk(third)
    assert inode(first) == inode(third)
    shutil.rmtree(first)
    for path in (second, third):
        assert_same(spacy.load(path)(TEXT)._.elmo, nlp(TEXT)._.elmo)


@pytest.mark.parametrize("what", ["weights", "file", "removed"])
def test_a_checkpoint_is_written_anew_when_the_weights_changed(
    what, nlp, bilm_config, calm_weights, tmp_path
):
    other = spacy.blank("xx")
    other.add_pipe("elmo", config={"model": bilm_config(calm_weights)})
    first, second = tmp_path / "first", tmp_path / "second"
    nlp.to_disk(first)
    before = nlp(TEXT)._.elmo
    if what == "weights":
        nlp.get_pipe("elmo").from_bytes(other.get_pipe("elmo").to_bytes())
    elif what == "file":
        other.to_disk(first)
    else:
        shutil.rmtree(first)
    now = nlp(TEXT)._.elmo
    nlp.to_disk(second)
    assert_same(spacy.load(second)(TEXT)._.elmo, now)
    if what != "removed":
        assert inode(first) != inode(second)
    if what == "weights":
        assert not np.allclose(now, before, atol=1e-3)
        assert_same(spacy.load(first)(TEXT)._.elmo, before)


def test_to_write_over_a_checkpoint_leaves_those_linked_to_it(
    nlp, bilm_config, calm_weights, tmp_path
):
    nlp.to_disk(tmp_path / "first")
    nlp.to_disk(tmp_path / "second")
    other = spacy.blank("xx")
    other.add_pipe("elmo", config={"model": bilm_config(calm_weights)})
    other.to_disk(tmp_path / "first")
    for path, wanted in (("first", other), ("second", nlp)):
        assert_same(spacy.load(tmp_path / path)(TEXT)._.elmo, wanted(TEXT)._.elmo)


def test_pipelines_pickle_before_and_after_training(nlp):
    tagger = add_task(nlp, "tagger", layers=1)
    examples = make_examples(nlp, 4)
    pickle.loads(pickle.dumps(nlp))
    optimizer = nlp.initialize(lambda: examples)
    for eg in examples:
        eg.predicted._.elmo = None  # initialize() has read some of them
    nlp.update(examples, sgd=optimizer)
    assert all(eg.predicted._.elmo is None for eg in examples)
    nlp(TEXT)
    copied = pickle.loads(pickle.dumps(nlp))
    assert_same(copied(TEXT)._.elmo, nlp(TEXT)._.elmo)
    scores = [pipe.predict([nlp(TEXT)]) for pipe in (tagger, copied.get_pipe("tagger"))]
    np.testing.assert_array_equal(*scores)
    copied.update(make_examples(copied, 4), sgd=copied.resume_training())


def test_docs_carry_their_vectors(nlp):
    doc = nlp(TEXT)
    wanted = doc._.elmo.copy()
    docbin = DocBin(store_user_data=True, docs=[doc])
    for other in (
        Doc(nlp.vocab).from_bytes(doc.to_bytes()),
        next(DocBin().from_bytes(docbin.to_bytes()).get_docs(nlp.vocab)),
        doc.copy(),
        pickle.loads(pickle.dumps(doc)),
    ):
        np.testing.assert_array_equal(other._.elmo, wanted)
        np.testing.assert_array_equal(other[3]._.elmo, wanted[3])
    plain = DocBin(docs=[doc])
    assert next(plain.get_docs(nlp.vocab))._.elmo is None


def test_a_doc_does_not_hold_the_vectors_of_its_batch(nlp):
    for doc in nlp.pipe([TEXT] * 20):
        X = doc._.elmo
        assert X.base is None or X.base.size == X.size


def test_doc_cleaner_frees_the_vectors(nlp):
    nlp.add_pipe("doc_cleaner", config={"attrs": {"_.elmo": None}})
    doc = nlp(TEXT)
    assert doc._.elmo is None
    assert doc[3]._.elmo is None


def test_doc_cleaner_after_a_merge_is_no_error(nlp):
    patterns = [{"label": "WORK", "pattern": "short play"}]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
    nlp.add_pipe("merge_entities")
    nlp.add_pipe("doc_cleaner", config={"attrs": {"_.elmo": None, "tensor": None}})
    doc = nlp(TEXT)
    assert doc[5].text == "short play"
    assert not hasattr(doc._, "elmo")


def test_update_annotates_and_learns_nothing(nlp):
    elmo = nlp.get_pipe("elmo")
    example = Example(nlp.make_doc(TEXT), nlp.make_doc(TEXT))
    assert elmo.update([example], sgd=None, losses={"ner": 1.0}) == {"ner": 1.0}
    assert elmo.update([]) == {}
    assert_same(example.predicted._.elmo, nlp(TEXT)._.elmo)
    assert example.reference._.elmo is None
    assert not elmo.is_trainable
    with pytest.raises(TypeError):
        elmo.update([nlp.make_doc(TEXT)])


def test_docs_that_are_joined_have_no_vectors_yet(nlp):
    """spaCy leaves what belongs to a whole Doc out: never the vectors of a part."""
    docs = [nlp("One play."), nlp("Two plays more.")]
    with pytest.warns(UserWarning, match=r"W101.*'elmo'"):
        joined = Doc.from_docs(docs)
    assert joined._.elmo is None
    assert joined[4]._.elmo is None
    wanted = np.concatenate([doc._.elmo for doc in docs])
    for sent, doc in zip((joined[:3], joined[3:]), docs):
        assert sent.text.strip() == doc.text
    joined = Doc(
        nlp.vocab, words=[token.text for token in joined],
        sent_starts=[True, False, False, True, False, False, False],
    )  # fmt: skip
    np.testing.assert_allclose(nlp(joined)._.elmo, wanted, rtol=1e-5, atol=1e-6)


def test_a_part_of_a_pipeline_may_run(nlp):
    with nlp.select_pipes(enable=[]):
        assert nlp("A play.")._.elmo is None
    with nlp.select_pipes(enable=["elmo"]):
        assert nlp("A play.")._.elmo.shape == (3, 3, 12)


def test_saving_leaves_a_meta_json_that_is_not_of_weights(nlp, tmp_path):
    nlp.to_disk(tmp_path)
    nlp.get_pipe("elmo").to_disk(tmp_path)
    assert (tmp_path / "meta.json").is_file()


def test_a_list_that_is_set_becomes_an_array(nlp):
    doc = nlp("play")
    doc._.elmo = doc._.elmo.tolist()
    assert doc._.elmo.shape == (1, 3, 12) and doc._.elmo.dtype == np.float32
