"""What benchmarks/experiments/languages is made of."""

import random
import sys
from pathlib import Path

import pytest
import srsly
from spacy.tokens import Doc
from spacy.util import load_model_from_config
from spacy.vocab import Vocab
from thinc.api import Config

FOLDER = Path(__file__).parent.parent / "benchmarks" / "experiments"
sys.path[:0] = [str(FOLDER), str(FOLDER / "languages")]

import noise  # noqa: E402
import plan  # noqa: E402
import run  # noqa: E402

PLAN = plan.plan()


@pytest.mark.parametrize("arm", PLAN["arms"])
def test_each_arm_has_a_config_that_spacy_takes(arm):
    runs = run.runs_of(PLAN)
    settings = runs[f"heads_ko/{arm}/all/0"]
    config = Config().from_str(run.make_config(settings).to_str())
    nlp = load_model_from_config(config, auto_fill=True, validate=True)
    assert nlp.lang == "ko"
    assert ("elmo" in nlp.pipe_names) == arm.startswith("ELMo")


def test_an_arm_takes_the_files_of_the_language():
    runs = run.runs_of(PLAN)
    assert runs["names_hu/ELMo, 60/all/2"]["weights"] == "languages/hu/bilm_60"
    assert runs["tags_ru/floret/all/0"]["vectors"] == "languages/ru/vectors"


@pytest.fixture(scope="module")
def doc():
    words = ["Anna", "reads", "modern", "novels", "in", "Berlin", "."]
    ents = ["B-PER", "O", "O", "O", "O", "B-LOC", "O"]
    # As noise.py reads them: a vocab of no language knows of no letters.
    return Doc(Vocab(), words=words, tags=[*"NVANPN."], ents=ents)


@pytest.mark.parametrize("kind", noise.KINDS)
def test_noise_changes_words_and_not_their_annotation(doc, kind):
    (noisy,) = noise.add_noise([doc], noise.KINDS[kind], 1.0, 0)
    assert [t.tag_ for t in noisy] == [t.tag_ for t in doc]
    assert [e.label_ for e in noisy.ents] == ["PER", "LOC"]
    assert noisy[-1].text == "."
    assert sum(a.text != b.text for a, b in zip(doc, noisy)) >= 4
    (again,) = noise.add_noise([doc], noise.KINDS[kind], 1.0, 0)
    assert again.text == noisy.text


def test_no_noise_is_none_and_a_share_of_it_is_a_share(doc):
    (same,) = noise.add_noise([doc], noise.typed_wrongly, 0.0, 0)
    assert [t.text for t in same] == [t.text for t in doc]
    many = noise.add_noise([doc] * 300, noise.read_wrongly, 0.1, 0)
    changed = sum(a.text != b.text for d in many for a, b in zip(doc, d))
    assert 0.06 < changed / (6 * 300) < 0.14


def test_ocr_reads_what_looks_alike():
    found = {noise.read_wrongly("modern", random.Random(i), ["x"]) for i in range(50)}
    assert {"rnodern", "modem"} <= found


def test_earlier_scores_stay_but_for_what_is_made_anew_or_of_another_seed(tmp_path):
    scores = {name: {"none": {"tag_acc": 0.9}} for name in ("spaCy", "ELMo")}
    srsly.write_json(tmp_path / "noise.json", {"seed": 1, "scores": scores})
    assert list(noise.others(tmp_path, "noise", 1, ["ELMo"])) == ["spaCy"]
    assert noise.others(tmp_path, "noise", 0, ["ELMo"]) == {}
    assert noise.others(tmp_path, "noise_hu", 1, ["ELMo"]) == {}
    assert noise.others(None, "noise", 1, ["ELMo"]) == {}
