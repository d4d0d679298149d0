"""What benchmarks/experiments is made of: its configs, data, models and scores."""

import gc
import math
import operator
import shutil
import sys
from pathlib import Path

import pytest
import spacy
import srsly
import torch
from spacy.cli.train import train
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.util import fix_random_seed, load_model_from_config
from thinc.api import Config

pytest.importorskip("torchcrf", reason='pip install ".[experiments]"')
pytest.importorskip("scorch", reason='pip install ".[experiments]"')

FOLDER = Path(__file__).parent.parent / "benchmarks" / "experiments"
PLANS = sorted(FOLDER.glob("*/experiment.yml"))
sys.path[:0] = [str(FOLDER), *(str(FOLDER / x) for x in ("adaptation", "mixes", "ud"))]

import adapt  # noqa: E402
import answers  # noqa: E402
import components  # noqa: E402, F401
import coref  # noqa: E402
import data  # noqa: E402
import evaluate  # noqa: E402
import inference  # noqa: E402
import mixes  # noqa: E402
import plots  # noqa: E402
import roles  # noqa: E402
import run  # noqa: E402
import tags  # noqa: E402
from task import to_predict  # noqa: E402


def some_runs():
    """Each model, each encoder and each setting at least once."""
    seen = set()
    for path in PLANS:
        for key, settings in run.runs_of(srsly.read_yaml(path)).items():
            kinds = {settings["cfg"], settings["encoder"], *settings["set"]}
            if not kinds <= seen:
                seen |= kinds
                yield pytest.param(settings, id=f"{path.parent.name}/{key}")


@pytest.mark.parametrize("settings", list(some_runs()))
def test_every_run_has_a_config_that_spacy_takes(settings):
    config = Config().from_str(run.make_config(settings).to_str())
    nlp = load_model_from_config(config, auto_fill=True, validate=True)
    says_elmo = any(x in settings["encoder"] for x in ("elmo", "layer"))
    assert ("elmo" in nlp.pipe_names) == says_elmo
    assert settings["data"] in data.SETS


def test_settings_of_an_arm_reach_the_model_and_the_training():
    settings = {
        "cfg": "roles", "data": "srl_ewt", "encoder": "elmo", "limit": 7, "seed": 0,
        "set": {"model.embed.*.elmo.l2": 1, "model.depth": 3, "training.dropout": 0.5},
    }  # fmt: skip
    config = run.make_config(settings)
    model = config["components"]["roles"]["model"]
    assert (model["embed"]["*"]["elmo"]["l2"], model["depth"]) == (1, 3)
    assert config["training"]["dropout"] == 0.5
    assert config["corpora"]["train"]["limit"] == 7


def test_settings_are_tried_on_the_encoder_of_their_arm():
    runs = run.runs_of(srsly.read_yaml(FOLDER / "settings" / "experiment.yml"))
    for key, settings in runs.items():
        task, arm, *rest = key.split("/")
        plain = "/".join([task, arm.partition(",")[0], *rest])
        assert settings["encoder"] == runs[plain]["encoder"], key


def test_dropout_of_inference_is_before_what_the_two_texts_are_aligned_by():
    net = inference.ESIM(8, 0.5)
    net.build(4, 0, ["yes", "no"])
    assert net.training
    h, _, mask = net.encode([torch.randn(5, 4), torch.randn(3, 4)], [])
    assert (h[mask] != 0).all()


def test_a_table_has_what_was_run_as_it_is_planned_now(tmp_path):
    task = {"cfg": "names", "data": "wnut17", "scores": {"ents_f": "names"}}
    arms = {"without": {"encoder": "hashed"}, "ELMo": {"encoder": "elmo"}}
    tasks = {"n": task, "not run": {**task, "scores": {"ents_f": "other names"}}}
    plan = {"title": "T", "description": "D", "seeds": [0, 1], "tasks": tasks}
    runs = run.runs_of({**plan, "tasks": {"n": task}, "arms": arms})
    costs = {"cpu_hours": 0.5, "words_per_second": 9, "disk_mb": 7}
    machines = ["fast", "slow", "fast", "fast"]
    results = {
        key: {"run": runs[key], "scores": {"ents_f": 0.4 + 0.1 * i}, **costs}
        for i, key in enumerate(runs)
    }
    for result, name in zip(results.values(), machines):
        result["machine"] = name
    results["n/ELMo/all/1"] = {"run": {"encoder": "another"}}
    shared = {"of another experiment": results.pop("n/without/all/0")}
    paths = [tmp_path / name for name in ("a.json", "b.json", "not there.json")]
    for path, mine in zip(paths, (results, shared)):
        run.write_json(path, {"runs": mine})
    done = run.done_of(runs, paths)
    text = run.render({**plan, "arms": arms}, done)
    assert "| names | 50.0 ± 14.1 | 50.0 |" in text
    assert "| n, without | 0.50 | 9 | 7 |" in text
    assert "other names" not in text
    assert "Machine: fast, but for these:\nn/ELMo/all/0: slow." in text


def test_the_best_evaluation_is_the_one_that_spacy_keeps():
    records = [{"step": i, "score": x} for i, x in enumerate([0.1, 0.5, 0.5, 0.4])]
    assert run.best_of(records)["step"] == 2


@pytest.mark.parametrize("name", sorted(plots.PLOTS))
def test_every_plot_is_drawn(name, tmp_path):
    task = {"scores": {"ents_f": "names"}, "limits": [0]}
    arms = ["spaCy", "ELMo, 10"]
    plan = {"title": "T", "seeds": [0, 1], "tasks": {"ner_hu": task}, "arms": arms}
    result = {"score": 0.5, "curve": [[100, 0.4]], "words_per_second": 9}
    result["scores"] = {"ents_f": 0.5}
    longer = {**result, "curve": [[100, 0.4], [200, 0.5]]}
    runs = {
        f"ner_hu/{arm}/all/{seed}": of_seed
        for arm in arms
        for seed, of_seed in enumerate((longer, result))
    }
    plots.PLOTS[name](plan, runs, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
    plots.PLOTS[name](plan, {}, tmp_path / "empty.png")  # before the first run


def test_a_bar_that_was_not_run_is_no_score_of_zero():
    assert all(map(math.isnan, plots.mean_and_deviation([])))
    mean, deviation = plots.mean_and_deviation([0.5])  # one seed does not deviate by 0
    assert mean == 0.5 and math.isnan(deviation)


@pytest.mark.parametrize("name", sorted(data.SETS))
def test_every_set_is_read(name, shared):
    folder = shared / "data" / "eval"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    docs = [doc for doc, _ in zip(data.SETS[name](folder, "dev"), range(3))]
    assert len(docs) == 3
    for doc in docs:
        predicted = to_predict(doc)
        assert [t.text for t in predicted] == [t.text for t in doc]
        assert [s.start for s in predicted.sents] == [s.start for s in doc.sents]
        assert "gold" not in predicted.user_data
        if name == "squad":
            start, end = doc.user_data["gold"]["span"]
            assert doc[start:end].text in doc.user_data["gold"]["answers"]


def test_a_folder_of_sets_has_one_source(tmp_path, monkeypatch):
    monkeypatch.setitem(data.SETS, "none", lambda folder, part: [])
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for part in ("train", "dev"):
        data.convert(tmp_path / "a", "none", part, tmp_path / "corpus")
    with pytest.raises(SystemExit, match="was made of another folder"):
        data.convert(tmp_path / "b", "none", "train", tmp_path / "corpus")


def test_mentions_are_read_from_brackets():
    gum = ["(1|person (2|place)", "_", "1)", "(2|place|Rome)", "(3|a (4|b", "4) 3)"]
    assert data.clusters(gum, " ") == [[(0, 1), (3, 4)], [(0, 3)], [(4, 6)], [(4, 6)]]
    assert data.clusters(["(1|(2)", "1)|(2)"], "|") == [[(0, 1), (1, 2)], [(0, 2)]]


def test_tags_are_spans():
    found = tags.spans_of(["B-A", "I-A", "B-A", "O", "I-B", "I-C"])
    assert list(found) == [(0, 2, "A"), (2, 3, "A"), (4, 5, "B"), (5, 6, "C")]


def test_decoding_keeps_to_bio():
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    scores = torch.randn(20, 30, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(20, 30, dtype=torch.bool)
    for row in tags.constraints(labels).decode(scores, mask):
        found = [labels[i] for i in row]
        for before, tag in zip(["O", *found], found):
            assert tag[0] != "I" or before in (f"B-{tag[2:]}", tag)


def test_an_answer_is_the_best_allowed_span():
    start, end = torch.zeros(1, 40), torch.zeros(1, 40)
    start[0, [30, 5, 2]] = torch.tensor([3.0, 2.0, 0.5])
    end[0, [2, 35, 29]] = torch.tensor([9.0, 1.0, 8.0])
    # 30..2 is backwards and 5..29 too long; 2..2 is one token.
    assert answers.best_spans(start, end) == [(2, 2)]
    assert answers.best_spans(start, end.clamp(max=1)) == [(30, 35)]


def test_arguments_go_on_after_a_break_and_leave_out_the_predicate():
    found = roles.arguments(["B-A1", "B-V", "O", "B-C-A1", "I-C-A1", "B-C-V"])
    assert found == {("A1", ((0, 1), (3, 5)))}


def test_answers_are_compared_as_squad_does():
    assert answers.words("The  Cat's (tail)!") == ["cats", "tail"]
    assert answers.overlap(["a", "b", "b"], ["b", "c"]) == pytest.approx(0.4)


def test_coreference_is_scored_as_in_the_scorers_paper():
    # The example of Pradhan et al. 2014. B3: recall 35/84, precision 1/2; CEAF-e:
    # recall 1.3/2, precision 1.3/3.
    gold = [{"a", "b", "c"}, {"d", "e", "f", "g"}]
    found = [{"a", "b"}, {"c", "d"}, {"f", "g", "h", "i"}]
    scores = coref.conll(gold, found)
    assert scores["coref_muc"] == pytest.approx(0.4)
    assert scores["coref_b3"] == pytest.approx(5 / 11)
    assert scores["coref_ceafe"] == pytest.approx(0.52)
    assert coref.conll(gold, [{"x", "y"}])["coref_f"] == 0.0
    assert coref.conll(gold, [])["coref_f"] == 0.0


def a_doc(vocab, words, given=None, gold=None, n_first=None):
    starts = [i in (0, n_first) for i in range(len(words))]
    doc = Doc(vocab, words=words, sent_starts=starts)
    if gold is not None:
        doc.user_data.update(given=given, gold=gold)
    return doc


def toy_roles(vocab):
    for a, b in [("dogs", "cats"), ("cats", "dogs"), ("birds", "dogs")]:
        rows = [["B-A0", "B-V", "B-A1", "I-A1", "O"], ["O", "O", "O", "B-V", "B-A1"]]
        doc = a_doc(vocab, [a, "see", "the", b, "run"], [1, 3], rows)
        doc[1].tag_ = "VB"
        yield doc
    yield a_doc(vocab, ["nobody"], [], [])


def toy_label(vocab):
    for word, label in [("good", "yes"), ("bad", "no"), ("fine", "yes")]:
        yield a_doc(vocab, ["it", "was", word, "then"], 2, label, n_first=2)


def toy_answers(vocab):
    for word in ("red", "blue", "green"):
        gold = {"span": (4, 5), "answers": [word]}
        yield a_doc(vocab, ["which", "?", "it", "is", word, "."], 2, gold, n_first=2)


def toy_coref(vocab):
    for a, b in [("ann", "bob"), ("bob", "cy"), ("cy", "ann")]:
        gold = [[(0, 1), (3, 4)], [(2, 3), (5, 6)]]
        spans = sorted(span for cluster in gold for span in cluster)
        yield a_doc(vocab, [a, "met", b, a, "saw", b], spans, gold, n_first=3)


def toy_names(vocab):
    for name in ("Ann", "Bob", "Cy"):
        doc = a_doc(vocab, ["then", name, "Lee", "left"])
        doc.ents = [Span(doc, 1, 3, label="PER")]
        yield doc


def longer(doc, n):
    """A Doc with more words, which are annotated as nothing."""
    words = [token.text for token in doc] + ["again"] * n
    ents = [token.ent_iob_ + "-PER" * bool(token.ent_type_) for token in doc]
    tags = [token.tag_ for token in doc] + [""] * n
    starts = [token.is_sent_start for token in doc] + [False] * n
    ents = [tag if tag else "O" for tag in ents] + ["O"] * n
    made = Doc(doc.vocab, words=words, tags=tags, sent_starts=starts, ents=ents)
    made.user_data.update(doc.user_data)
    if doc[1].tag_ == "VB":
        made.user_data["gold"] = [row + ["O"] * n for row in doc.user_data["gold"]]
    return made


@pytest.mark.parametrize(
    "cfg, docs, n_parts",
    [
        ("roles", toy_roles, lambda doc: len(doc) * len(doc.user_data["given"])),
        ("inference", toy_label, lambda doc: 1),
        ("sentiment", toy_label, lambda doc: 1),
        ("answers", toy_answers, lambda doc: 1),
        ("coref", toy_coref, lambda doc: len(doc.user_data["given"])),
        ("names", toy_names, len),
    ],
)
def test_a_doc_is_read_beside_longer_ones_as_alone(cfg, docs, n_parts, bilm_config):
    """What is padded is masked. A loss is the mean of so many parts of each Doc."""
    config = run.make_config(
        {"cfg": cfg, "data": "", "encoder": "elmo_both", "limit": 0, "seed": 0,
         "set": {"model.hidden": 16, "model.dropout": 0.0}}
    )  # fmt: skip
    config["components"]["elmo"]["model"] = bilm_config()
    nlp = load_model_from_config(Config().from_str(config.to_str()), auto_fill=True)
    golds = [longer(doc, n) for doc, n in zip(docs(nlp.vocab), (0, 9, 3))]
    read = list(map(to_predict, golds))
    nlp.initialize(lambda: list(map(Example, read, golds)))
    nlp.get_pipe("elmo").annotate(read)
    *layers, task = nlp.pipeline[-1][1].model.layers
    net = task.shims[0]._model.eval()
    xs, outs = ([torch.tensor(x) for x in layer.predict(read)] for layer in layers)
    with torch.no_grad():
        alone = [
            float(net([x], [o], [d], [g])) for x, o, d, g in zip(xs, outs, read, golds)
        ]
        together = float(net(xs, outs, read, golds))
    parts = list(map(n_parts, golds))
    wanted = sum(map(operator.mul, alone, parts)) / sum(parts)
    assert together == pytest.approx(wanted, rel=1e-5)
    assert max(alone) - min(alone) > 1e-3


@pytest.mark.parametrize(
    "cfg, docs, score",
    [
        ("roles", toy_roles, "verbs_f"),
        ("inference", toy_label, "label_acc"),
        ("sentiment", toy_label, "label_acc"),
        ("answers", toy_answers, "answer_exact"),
        ("coref", toy_coref, "coref_f"),
        ("names", toy_names, "ents_f"),
    ],
)
def test_a_model_learns_a_few_docs_by_heart_and_is_saved(
    cfg, docs, score, bilm_config, tmp_path
):
    fix_random_seed(0)
    config = run.make_config(
        {"cfg": cfg, "data": "", "encoder": "elmo_both", "limit": 0, "seed": 0,
         "set": {"training.optimizer.use_averages": True,
                 "model.hidden": 16, "model.dropout": 0.0,
                 "model.embed.*.hashed.width": 16}}
    )  # fmt: skip
    config["components"]["elmo"]["model"] = bilm_config()
    nlp = load_model_from_config(Config().from_str(config.to_str()), auto_fill=True)
    examples = [Example(to_predict(doc), doc) for doc in docs(nlp.vocab)]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    nlp.update(examples[-1:], sgd=optimizer)
    n_tensors = []
    for _ in range(20):
        nlp.update(examples, sgd=optimizer)
        nlp.update(examples, sgd=optimizer)
        if len(n_tensors) < 2:
            n_tensors.append(sum(type(x) is torch.Tensor for x in gc.get_objects()))
    assert n_tensors[0] == n_tensors[1]  # none of an update is kept
    (shim,) = nlp.pipeline[-1][1].model.layers[-1].shims
    trained = shim.to_bytes()
    with nlp.use_params(optimizer.averages):
        assert shim.to_bytes() != trained
    assert shim.to_bytes() == trained
    assert nlp.evaluate(examples)[score] == 1.0
    component = nlp.pipeline[-1][1]
    assert component.update([Example(Doc(nlp.vocab), Doc(nlp.vocab))]) == {}
    nlp.to_disk(tmp_path)
    copied = load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    for loaded in (copied, spacy.load(tmp_path)):
        again = [Example(to_predict(eg.y), eg.y) for eg in examples]
        assert loaded.evaluate(again)[score] == 1.0
        # Docs without words, and without mentions
        silent = Doc(loaded.vocab, words=["nobody"], sent_starts=[True])
        silent.user_data["given"] = []
        loaded(Doc(loaded.vocab))
        found = list(loaded.pipe([Doc(loaded.vocab), to_predict(again[0].y)]))
        assert list(map(len, found)) == [0, len(again[0].y)]
        if cfg == "coref":
            assert loaded(silent).user_data["found"] == []
    if cfg not in ("sentiment", "names"):  # which read words alone
        with pytest.raises(ValueError, match="not in doc.user_data"):
            loaded(a_doc(loaded.vocab, ["nothing", "said"]))


def test_the_learned_weights_are_those_of_the_runs():
    found = mixes.means_of(srsly.read_json(mixes.RESULTS)["runs"])
    kept = srsly.read_json(FOLDER / "mixes" / "results.json")
    for name, row in found.items():
        assert [*kept[name]["s"], kept[name]["gamma"]] == pytest.approx(row)


def test_the_results_of_an_adaptation_are_a_table():
    scores = {"before": [0.4, 0.5], "after": [0.5]}
    row = {"perplexity": {"before": 90.0, "after": 60.0}, "score": scores}
    text = adapt.render({"tasks": {"sentiment": row}, "machine": "M"})
    assert "| sentiment | 90.0 | 60.0 | 45.0 ± 7.1 | 50.0 |" in text


def test_a_result_of_files_that_have_changed_is_stale(tiny_weights, tmp_path):
    weights = shutil.copytree(tiny_weights, tmp_path / "bilm_60")
    settings = {"cfg": "tags", "data": "ewt", "encoder": "cnn_elmo", "set": {},
                "limit": 0, "seed": 0, "weights": "bilm_60"}  # fmt: skip
    files = run.made_of(settings, str(weights), tmp_path)
    assert not run.is_stale({"run": settings, "made_of": files}, "", tmp_path)
    with (weights / "weights.hdf5").open("ab") as file:
        file.write(b"more")
    assert run.is_stale({"run": settings, "made_of": files}, "", tmp_path)
    assert not run.is_stale({"run": settings}, "", tmp_path)  # it does not say
    # An older result says less.
    assert not run.is_stale({"run": settings, "made_of": {}}, "", tmp_path)
    shutil.rmtree(weights)
    assert not run.is_stale({"run": settings, "made_of": files}, "", tmp_path)


def test_a_result_of_a_config_that_has_changed_is_stale(monkeypatch, tmp_path):
    settings = {"cfg": "tags", "data": "ewt", "encoder": "cnn", "set": {},
                "limit": 0, "seed": 0}  # fmt: skip
    result = {"run": settings, "made_of": run.made_of(settings, "", tmp_path)}
    assert not run.is_stale(result, "", tmp_path)
    here = shutil.copytree(run.HERE / "tasks", tmp_path / "tasks").parent
    shutil.copytree(run.HERE / "encoders", here / "encoders")
    monkeypatch.setattr(run, "HERE", here)
    assert not run.is_stale(result, "", tmp_path)
    base = here / "tasks" / "base.cfg"
    text = base.read_text()
    assert "patience = 2000" in text
    base.write_text(text.replace("patience = 2000", "patience = 3000"))
    assert run.is_stale(result, "", tmp_path)


def test_weights_are_known_by_their_content_whatever_their_names(
    tiny_weights, tmp_path
):
    settings = {"cfg": "tags", "encoder": "cnn_elmo", "set": {}, "limit": 0}
    found = set()
    for i in range(2):
        model = tmp_path / str(i)
        model.mkdir()
        for name in ("options.json", "weights.hdf5"):
            shutil.copy(tiny_weights / name, model / f"small_{name}")
        with (model / "small_weights.hdf5").open("ab") as file:
            file.write(b"x" * i)
        archive = shutil.make_archive(str(model), "zip", model)
        for weights in (str(model), archive):
            found.add(run.made_of(settings, weights, tmp_path)["biLM"])
    assert len(found) == 4


@pytest.fixture
def experiments(monkeypatch, tmp_path):
    """Two that share their runs, each of which has the number of its training for a
    score."""
    n = iter(range(100))

    def train(settings, data, weights, work, folder, jobs):
        model = folder / "output" / "model-best"
        model.mkdir(parents=True)
        score = next(n)
        (model / "score").write_text(str(score))
        costs = {"cpu_hours": 0.5, "words_per_second": 9, "disk_mb": 7}
        return {"score": score, "scores": {"f": score}, "machine": "M", **costs}

    monkeypatch.setattr(run, "train", train)
    (tmp_path / "wnut17").mkdir()
    for part in ("train", "dev"):
        (tmp_path / "wnut17" / f"{part}.tsv").write_text("Anna\tB-person\n")
    names = {"cfg": "names", "data": "wnut17", "scores": {"f": "names"}}
    arms = {"without": {"encoder": "hashed"}, "floret": {"encoder": "static"}}
    arms["floret"]["vectors"] = "vectors"
    paths = []
    for name in ("a", "b"):
        plan = {"title": name, "description": name, "seeds": [0, 1], "arms": arms}
        paths.append(tmp_path / name / "experiment.yml")
        paths[-1].parent.mkdir()
        srsly.write_yaml(paths[-1], {**plan, "tasks": {"names": names}})
    return paths


def scores_in(experiment):
    runs = srsly.read_json(experiment.with_name("results.json"))["runs"]
    return [result["score"] for result in runs.values()]


def run_all(experiment, only="*/without/*", **how):
    work = experiment.parents[1]
    run.main(experiment, work, work=work, only=only, jobs=1, **how)
    return scores_in(experiment)


def test_what_is_run_afresh_goes_before_what_another_experiment_has(experiments):
    a, b = experiments
    assert run_all(a) == run_all(b) == [0, 1]
    assert run_all(a, "*/without/*/1", fresh=True) == [0, 2]
    assert run_all(a, "nothing") == [0, 2]
    assert scores_in(b) == [0, 1]


def test_a_result_stays_until_its_run_has_ended_afresh(experiments):
    a = experiments[0]
    (a.parents[1] / "vectors").mkdir()
    assert run_all(a, "*/floret/*") == [0, 1]
    (a.parents[1] / "vectors").rmdir()
    with pytest.raises(SystemExit, match="needs .*vectors"):
        run_all(a, "*/floret/*", fresh=True)
    assert scores_in(a) == [0, 1]


def test_data_are_read_anew_where_runs_are(experiments):
    a = experiments[0]
    folder = a.parents[1]
    old = data.convert(folder, "wnut17", "dev", folder / "corpus").read_bytes()
    (folder / "wnut17" / "dev.tsv").write_text("Bonn\tB-location\n")
    run_all(a)
    assert (folder / "corpus" / "wnut17_dev.spacy").read_bytes() == old
    run_all(a, fresh=True)
    assert (folder / "corpus" / "wnut17_dev.spacy").read_bytes() != old


def test_what_is_called_and_is_not_there_is_said(experiments, capsys):
    assert run_all(experiments[0], "nams/*") == []
    assert "No run is called nams/*" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no_such_bilm"):
        run_all(experiments[0], weights="no_such_bilm")
    with pytest.raises(SystemExit, match="nonsense: no set is called so"):
        data.main(experiments[0], "nonsense", experiments[0])


def test_a_pipeline_is_kept_of_the_run_that_has_the_result(experiments):
    a = experiments[0]
    kept = a.parents[1] / "pipelines" / "names" / "without" / "all" / "0" / "score"
    assert run_all(a, "*/without/*/0", keep=True) == [0]
    assert run_all(a, "*/without/*/0", keep=True) == [0]
    plan = srsly.read_yaml(a)
    plan["arms"]["without"]["set"] = {"training.patience": 3000}
    srsly.write_yaml(a, plan)
    assert run_all(a, "*/without/*/0") == [1]
    assert kept.read_text() == "0"
    assert run_all(a, "*/without/*/0", keep=True) == [2]
    assert kept.read_text() == "2"
    assert run_all(a, "*/without/*/0", fresh=True) == [3]  # of other code
    assert run_all(a, "*/without/*/0", keep=True) == [4]
    assert kept.read_text() == "4"


def test_a_table_of_other_configs_is_not_silent(experiments, monkeypatch, capsys):
    a = experiments[0]
    run_all(a)
    assert "Of another" not in capsys.readouterr().err
    here = shutil.copytree(run.HERE / "tasks", a.parent / "tasks").parent
    shutil.copytree(run.HERE / "encoders", here / "encoders")
    base = here / "tasks" / "base.cfg"
    base.write_text(base.read_text().replace("patience = 2000", "patience = 3000"))
    monkeypatch.setattr(run, "HERE", here)
    assert run_all(a, "*/without/*/0") == [2, 1]
    assert "biLM or vectors: names/without/all/1." in capsys.readouterr().err


def test_what_a_run_lacks_is_said_before_any_is_trained(experiments):
    with pytest.raises(SystemExit, match="names/floret/all/0 needs .*vectors"):
        run_all(experiments[0], "*")
    assert not experiments[0].with_name("results.json").is_file()


@pytest.mark.parametrize("name", ["ud", "ud_finetune"])
def test_a_treebank_is_learned_and_scored(name, tiny_weights, tmp_path):
    nlp = spacy.blank("en")
    docs = [
        Doc(
            nlp.vocab, words=[who, verb, "."], lemmas=[who, verb.rstrip("s"), "."],
            pos=["NOUN", "VERB", "PUNCT"], tags=["NNS", "VB", "."], heads=[1, 1, 1],
            deps=["nsubj:pass", "ROOT", "punct"],
        )
        for who, verb in [("dogs", "bark"), ("cats", "purrs"), ("birds", "sing")]
    ]  # fmt: skip
    path = tmp_path / "docs.spacy"
    # The parser leaves out relations that it sees less than 30 times.
    DocBin(docs=docs * 12).to_disk(path)
    overrides = {
        "paths.train": str(path), "paths.dev": str(path),
        "paths.elmo": str(tiny_weights), "training.max_steps": 25,
        "training.eval_frequency": 25,
    }  # fmt: skip
    config = FOLDER.parents[1] / "configs" / f"{name}.cfg"
    train(config, tmp_path, overrides=overrides)
    trained = tmp_path / "model-last"
    scores = evaluate.score(spacy.load(trained), docs)
    assert all(scores[name] == 100 for name in ("UPOS", "XPOS", "UAS", "LAS"))
    for of in ("ELMo", "another"):  # which leaves the first one in its place
        evaluate.main([path], [f"{of}={trained}"], tmp_path)
    shown = (tmp_path / "results.md").read_text()
    assert shown.count("| docs | 100.0 | 100.0 |") == 2
    assert "| ELMo | docs |" in shown and "| another | docs |" in shown
