import json
import shutil

import pytest
import spacy
from spacy.training import Example
from thinc.api import Config

from spacy_elmo.pipeline.learned_weights import get_mixes

S = [0.2, 0.3, 0.5]


@pytest.fixture(scope="module")
def nlp(bilm_config):
    """A tagger that listens, and one that has a biLM of its own beside its ear."""
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": bilm_config()})
    listener = {"@architectures": "spacy_elmo.ELMoListener.v1", "init": S}
    inline = {
        "@architectures": "spacy_elmo.ELMo.v1",
        "bilm": bilm_config(),
        "layers": "top",
    }
    both = {
        "@architectures": "spacy_elmo.EmbedWithELMo.v1",
        "width": 8,
        "embed": {**listener, "init": None, "upstream": "elmo"},
        "elmo": inline,
    }
    for name, tok2vec in (("one", listener), ("two", both)):
        model = {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}
        nlp.add_pipe("tagger", name=name, config={"model": model})
    annotations = {"tags": ["PRP", "VBP", "NN"]}
    example = Example.from_dict(nlp.make_doc("They like play"), annotations)
    nlp.initialize(lambda: [example])
    (mix,) = (n for n in nlp.get_pipe("one").model.walk() if n.name == "elmo-mix")
    mix.attrs["gamma_0"] = 2.0
    mix.set_param("gamma_shift", mix.ops.asarray1f([0.25]))
    return nlp


@pytest.fixture(scope="module")
def pipeline(nlp, tmp_path_factory):
    directory = tmp_path_factory.mktemp("pipelines") / "with_mixes"
    nlp.to_disk(directory)
    return directory


def test_mixes_of_a_pipeline(nlp):
    found = get_mixes(nlp)
    assert [(mix["component"], mix["upstream"]) for mix in found] == [
        ("one", "*"),
        ("two", "elmo"),
        ("two", None),
    ]
    assert found[0]["s"] == pytest.approx(S)
    assert found[0]["gamma"] == pytest.approx(2.5)
    assert found[1]["s"] == pytest.approx([1 / 3] * 3)
    assert found[2]["s"] == [0, 0, 1]


def test_disabled_components_count_and_others_do_not(nlp):
    with nlp.select_pipes(disable=["one"]):
        assert len(get_mixes(nlp)) == 3
    blank = spacy.blank("en")
    blank.add_pipe("sentencizer")
    blank.add_pipe("ner")
    assert get_mixes(blank) == []


def test_mix_as_json(nlp, pipeline, elmo):
    result = elmo("mix", pipeline, "--json")
    assert result.exit_code == 0, result.output
    # srsly writes 10 digits.
    for found, wanted in zip(json.loads(result.output), get_mixes(nlp), strict=True):
        assert found.pop("s") == pytest.approx(wanted.pop("s"))
        assert found == pytest.approx(wanted)


def test_mix_as_a_table(pipeline, elmo):
    result = elmo("mix", pipeline)
    assert result.exit_code == 0, result.output
    header, _, *rows = result.output.strip().splitlines()
    assert header.split() == "Component Listens to s_0 ... s_L gamma".split()
    assert rows[0].split() == ["one", "*", "0.200", "0.300", "0.500", "2.500"]
    assert "(its own biLM)" in rows[2]


def test_a_bilm_in_place_of_a_pipeline_is_told(elmo, tiny_weights, texts, tmp_path):
    for name in (tiny_weights, "en_elmo_sm"):
        embed = ["embed", texts[0], tmp_path / "x.hdf5", "--pipeline", name]
        for command in (["mix", name], embed):
            result = elmo(*command)
            assert result.exit_code == 1 and "[ELMO123]" in result.text


def test_pipelines_without_a_mix(elmo, tmp_path):
    spacy.blank("en").to_disk(tmp_path / "blank")
    result = elmo("mix", tmp_path / "blank")
    assert result.exit_code == 1 and "[ELMO080]" in result.text
    result = elmo("mix", tmp_path / "missing")
    assert result.exit_code == 1 and "[E050]" in result.text


def test_a_pipeline_may_need_code(pipeline, elmo, tmp_path):
    shutil.copytree(pipeline, tmp_path / "own")
    config = Config().from_disk(tmp_path / "own" / "config.cfg")
    model = config["components"]["elmo"]["model"]
    model["segmenter"] = {"@misc": "test_own_segmenter.v1"}
    config.to_disk(tmp_path / "own" / "config.cfg")
    result = elmo("mix", tmp_path / "own")
    assert result.exit_code == 1 and "[ELMO128]" in result.text
    assert "test_own_segmenter.v1" in result.text and "--code" in result.text
    code = tmp_path / "code.py"
    code.write_text(
        "import spacy\nfrom spacy_elmo.segmenters import segment_docs\n"
        "spacy.registry.misc('test_own_segmenter.v1')(segment_docs)\n"
    )
    result = elmo("mix", tmp_path / "own", "--code", code)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("unknown", ["component", "language"])
def test_a_pipeline_of_unknown_parts_is_a_message(unknown, pipeline, elmo, tmp_path):
    shutil.copytree(pipeline, tmp_path / "own")
    config = Config().from_disk(tmp_path / "own" / "config.cfg")
    if unknown == "component":
        config["nlp"]["pipeline"].append("mine")
        config["components"]["mine"] = {"factory": "test_unknown"}
    else:
        config["nlp"]["lang"] = "test_unknown"
    config.to_disk(tmp_path / "own" / "config.cfg")
    result = elmo("mix", tmp_path / "own")
    assert result.exit_code == 1 and "[ELMO128]" in result.text
    assert "test_unknown" in result.text and "--code" in result.text


def test_the_best_pipeline_of_a_training_is_offered(elmo, tmp_path):
    (tmp_path / "output" / "model-best").mkdir(parents=True)
    result = elmo("mix", tmp_path / "output")
    assert result.exit_code == 1 and "[ELMO129]" in result.text
    assert "output/model-best?" in result.text.replace(" ", "")
