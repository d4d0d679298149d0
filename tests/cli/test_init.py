"""From raw text and annotated sentences to packages."""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import made_up
import pytest
import spacy
import srsly
from spacy.cli._util import app
from spacy.util import load_config
from thinc.api import Config
from typer.testing import CliRunner
from weasel.cli.run import update_lockfile
from weasel.util import load_project_config

from spacy_elmo.cli.init import absolute
from spacy_elmo.recipe import gain, steps
from spacy_elmo.storage import hold

ENTITIES = "Anna B-PER\nwohnt O\nin O\nBonn B-LOC\n. O\n\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder of text, a treebank, names, and the config of a tiny biLM."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = random.Random(0)
    lexicon = [
        "".join(rng.choices("abdeilnorst", k=rng.randint(2, 9))) for _ in "x" * 400
    ]
    lines = [" ".join(rng.choices(lexicon, k=12)) + "." for _ in range(2000)]
    (folder / "text").mkdir()
    (folder / "text" / "a.txt").write_text("\n".join(lines))
    (folder / "train.conllu").write_text(120 * made_up.CONLLU, encoding="utf-8-sig")
    (folder / "names.iob").write_text(120 * ENTITIES)
    # A config of one's own need not have every setting.
    config = made_up.pretrain_config("", patience=3)
    Config(config).to_disk(folder / "tiny.cfg")
    return folder


@pytest.fixture(scope="module")
def command(inputs):
    """What a user types, for an output folder."""

    def make(output, *more):
        files = [
            "--treebank",
            inputs / "train.conllu",
            "--treebank",
            inputs / "names.iob",
        ]
        return [
            "init", inputs / "text", output, "--lang", "de", *files, "--hours", 0.001,
            "--config", inputs / "tiny.cfg", "--license", "CC0",
            "--name", "de_novels", *more,
        ]  # fmt: skip

    return make


@pytest.fixture(scope="module")
def project(tmp_path_factory, elmo, command):
    output = tmp_path_factory.mktemp("project") / "mine"
    result = elmo(*command(output, "--no-run"))
    assert result.exit_code == 0, result.output
    return output, result.text


def test_what_was_found_is_said(project):
    _, printed = project
    assert "23,508 words to train on, 492 held out" in printed
    assert "Words cut: 0.00% by the limit of" in printed
    assert "tagger, morphologizer, parser" in printed and "ner" in printed
    assert "tokens per second" in printed


def test_text_and_treebank_are_divided(project):
    output, _ = project
    train, heldout = (
        (output / "corpus" / name).read_text().split("\n")
        for name in ("text.txt", "heldout.txt")
    )
    assert not set(filter(None, train)).intersection(heldout)
    assert sorted(p.name for p in (output / "corpus" / "dev").iterdir()) == [
        "1-train.spacy", "2-names.spacy",
    ]  # fmt: skip


def test_the_configs_are_filled(project):
    output, _ = project
    pretraining = load_config(output / "configs" / "pretrain.cfg")
    assert pretraining["nlp"]["lang"] == "de"
    training = pretraining["training"]
    # Ten evaluations keep to a twentieth of the time, but read a token at least: on a
    # machine that is busy, this run has less than 200 tokens.
    assert 1 <= training["eval_tokens"] <= max(1, training["max_tokens"] / 200)
    elmo, baseline = (
        load_config(output / "configs" / f"{name}.cfg") for name in ("elmo", "baseline")
    )
    components = ["tagger", "morphologizer", "parser", "ner"]
    assert elmo["nlp"]["pipeline"] == ["elmo", *components]
    assert baseline["nlp"]["pipeline"] == components
    assert "spacy_elmo" not in baseline.to_str()
    assert elmo["training"] == baseline["training"]


def test_the_same_command_goes_on_and_another_is_refused(project, elmo, command):
    output, _ = project
    before = (output / "project.yml").stat().st_mtime_ns
    again = elmo(*command(output, "--no-run"))
    assert again.exit_code == 0, again.output
    assert (output / "project.yml").stat().st_mtime_ns == before
    other = elmo(*command(output, "--no-run", "--hours", 2))
    assert other.exit_code == 1 and "ELMO110" in other.text and "hours" in other.text


def test_what_packages_say_of_themselves_can_be_said_later(
    project, elmo, command, tmp_path
):
    output = shutil.copytree(project[0], tmp_path / "copy")
    for name, value in (("license", "MIT"), ("sources", "Novels")):
        result = elmo(*command(output, "--no-run", f"--{name}", value))
        assert result.exit_code == 0, result.output
    assert load_project_config(output)["vars"]["sources"] == "Novels"
    meta = json.loads((output / "configs" / "meta.json").read_text())
    assert meta["sources"] == ["Novels"] and meta["name"] == "novels"


def run(line, capsys):
    """A line of the project, in this process."""
    _, option, module, *args = shlex.split(line)
    if option == "-c":
        exec(module)
        return ""
    if module == "spacy_elmo.recipe.gain":
        gain.main(*map(Path, args))
        return capsys.readouterr().out
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def test_a_run_that_fails_says_how_to_go_on(project, elmo, command, monkeypatch):
    output, _ = project
    monkeypatch.setattr(sys, "executable", "false")
    result = elmo(*command(output))
    assert result.exit_code == 1 and "Run the same command again" in result.text


def test_every_step_of_the_project(
    project, elmo, command, tmp_path, monkeypatch, capfd
):
    output, _ = project
    for name in ("elmo", "baseline"):
        path = output / "configs" / f"{name}.cfg"
        config = Config().from_disk(path, interpolate=False)
        config["training"].update(max_steps=2, eval_frequency=2)
        config.to_disk(path)
    monkeypatch.chdir(output)
    found = load_project_config(output)  # with its variables filled in
    printed = ""
    by_name = {command["name"]: command for command in found["commands"]}
    for name in found["workflows"]["all"]:
        assert all(Path(path).exists() for path in by_name[name]["deps"])
        for line in by_name[name]["script"]:
            printed += run(line, capfd)
        assert all(Path(path).exists() for path in by_name[name].get("outputs", []))
        update_lockfile(output, by_name[name])
    assert "What ELMo gains" in printed and "Labeled heads (LAS)" in printed
    again = elmo(*command(output))
    assert again.exit_code == 0 and "pip install" in again.text, again.output
    # All but the comparison, which has no output.
    of_steps = capfd.readouterr().out
    assert of_steps.count("nothing changed") == len(by_name) - 1 == 5
    assert of_steps.count("Running command") == 1
    wheels = list((output / "packages").glob("*/dist/*.whl"))
    assert len(wheels) == 2
    for wheel in wheels:  # as pip would
        zipfile.ZipFile(wheel).extractall(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    nlp = spacy.load("de_novels")  # not de_de_novels
    assert nlp("Anna liest.")._.elmo.shape == (3, 3, 24)
    assert nlp.meta["license"] == "CC0"
    assert (tmp_path / "de_novels_elmo" / "weights.hdf5").is_file()
    # Made anew, the package says nothing of what it was.
    elmo(*command(output, "--no-run", "--license", "MIT"))
    for line in by_name["package"]["script"]:
        run(line, capfd)
    with zipfile.ZipFile(next(output.glob("packages/de_novels-*/dist/*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        card = wheel.read(name).decode()
    assert "MIT" in card and "CC0" not in card


def test_text_that_is_not_there_is_told_before_any_question(elmo, tmp_path):
    """And what SIGTERM does is as before: a process that forks later would hand
    KeyboardInterrupt on to its children."""
    before = signal.getsignal(signal.SIGTERM)
    result = elmo("init", tmp_path / "nothing", tmp_path / "new", "--lang", "de")
    assert result.exit_code == 1 and "ELMO050" in result.text
    assert "License" not in result.text
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("name", ["corpus", "training"])
def test_a_folder_that_is_there_is_left_alone(elmo, inputs, tmp_path, name):
    shutil.copytree(inputs / "text", tmp_path / name)
    result = elmo("init", tmp_path / name, tmp_path, "--lang", "de", "--no-run")
    assert result.exit_code == 1 and "ELMO111" in result.text
    assert [p.name for p in tmp_path.rglob("*")] == [name, "a.txt"]


@pytest.mark.parametrize("content", ["", "- a\n", "commands: []\n", "{"])
def test_another_project_is_left_alone(elmo, command, tmp_path, content):
    (tmp_path / "project.yml").write_text(content)
    result = elmo(*command(tmp_path))
    assert result.exit_code == 1 and "ELMO111" in result.text
    assert (tmp_path / "project.yml").read_text() == content


def test_what_a_killed_command_left_is_removed(elmo, inputs, tmp_path):
    (tmp_path / "out" / ".init.abcdefgh" / "corpus").mkdir(parents=True)
    (tmp_path / "short.txt").write_text("nur wenig Text")
    elmo("init", tmp_path / "short.txt", tmp_path / "out", "--lang", "de")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("given", [["--sources", "${a}"], ["--hours", "inf"]])
def test_options_that_no_project_can_have(elmo, command, tmp_path, given):
    result = elmo(*command(tmp_path / "out", *given))
    assert result.exit_code == 1 and "ELMO038" in result.text
    assert not (tmp_path / "out").exists()


def test_a_glob_may_begin_at_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert absolute("~/text/*.txt") == str(tmp_path / "text" / "*.txt")


@pytest.mark.parametrize(
    "name, content, problem",
    [
        ("latin1.txt", "ein schöner Tag\n".encode("latin1") * 9, "not UTF-8"),
        ("ud.txt", b"# sent_id = 1\n1\tEin\tein\tDET\n" * 9, "--treebank"),
        ("short.txt", b"nur zweihundert Worte hier " * 50, "ELMO130"),
        ("image.png", b"no text", "ELMO050"),
    ],
)
def test_bad_text(elmo, tmp_path, name, content, problem):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / name).write_bytes(content)
    result = elmo("init", tmp_path / "text", tmp_path / "new" / "out", "--lang", "de")
    assert result.exit_code == 1
    assert problem in result.text and "Traceback" not in result.text
    assert not [p for p in (tmp_path / "new").rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    "lang, problem",
    [
        ("zzz", "no language 'zzz'"),
        ("deu", "Did you mean de?"),
        ("pt-BR", "Did you mean pt?"),
        ("DE", "Did you mean de?"),
        ("vi", "Pyvi"),
        ("ko", "natto-py"),
    ],
)
def test_languages_that_cannot_be_had(elmo, command, tmp_path, lang, problem):
    result = elmo(*command(tmp_path / "out", "--lang", lang))
    assert result.exit_code == 1
    assert problem in result.text and "Traceback" not in result.text


def test_a_treebank_of_other_tokens_is_a_warning(elmo, inputs, tmp_path):
    other = made_up.CONLLU.replace(
        "\tSpaceAfter=No\n5\t.\t", "\tSpaceAfter=No\n5\t!?\t"
    )
    for old, new in (("Anna", "Anna-"), ("liest", "liest,"), ("das", "das;")):
        other = other.replace(f"\t{old}\t", f"\t{new}\t")
    (tmp_path / "other.conllu").write_text(120 * other)
    (tmp_path / "short.txt").write_text("nur wenig Text")
    treebank = "--treebank", tmp_path / "other.conllu"
    result = elmo(
        "init", tmp_path / "short.txt", tmp_path / "out", "--lang", "de", *treebank
    )
    assert result.exit_code == 1 and "ELMO130" in result.text
    assert "ELMOW010" in result.text and "'liest,' becomes 'liest ,'" in result.text


@pytest.mark.parametrize("given", [["--name", "my-novels"], ["--version", "0.1.0abc"]])
def test_what_no_package_can_be_called(elmo, inputs, tmp_path, given):
    run = "init", inputs / "text", tmp_path / "out", "--lang", "de", "--no-run"
    result = elmo(*run, *given)
    assert result.exit_code == 1 and given[1] in result.text
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="not on Windows")
def test_an_interrupt_loses_no_update(inputs, tmp_path):
    """By SIGTERM, which is taken as Ctrl+C: a shell may ignore that in background."""
    out = tmp_path / "out"
    command = [
        "init", inputs / "text", out, "--lang", "de", "--config", inputs / "tiny.cfg",
        "--hours", 0.05, "--license", "CC0", "--sources", "novels",
    ]  # fmt: skip
    command = [sys.executable, "-m", "spacy", "elmo", *map(str, command)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    log, deadline = out / "bilm" / "log.jsonl", time.monotonic() + 120
    while not (log.is_file() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ELMO058" in printed and "Run the same command again" in printed
    assert (out / "bilm" / "checkpoint.pt").is_file()
    assert not list(out.glob(".init.*"))


STEP = """
import pathlib, signal, time

def interrupted(*_):
    if pathlib.Path("once").exists():
        raise SystemExit(1)
    pathlib.Path("once").touch()

signal.signal(signal.SIGINT, interrupted)
pathlib.Path("began").touch()
time.sleep(99)
"""
INTERRUPTED = """
import pathlib, signal, sys
from spacy_elmo.cli.init import run_project

signal.signal(signal.SIGINT, signal.default_int_handler)
run_project(pathlib.Path(sys.argv[1]))
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="not on Windows")
def test_each_interrupt_reaches_the_step_that_runs(tmp_path):
    (tmp_path / "step.py").write_text(STEP)
    step = {"name": "step", "script": ["python step.py"]}
    project = {"commands": [step], "workflows": {"all": ["step"]}}
    srsly.write_yaml(tmp_path / "project.yml", project)
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    for name in ("began", "once"):
        while not (tmp_path / name).is_file() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "Run the same command again" in printed


def test_a_project_has_one_run_at_a_time(tmp_path, monkeypatch, capsys):
    """A run may be left of a command that was killed."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # it has its own process
    (tmp_path / "project.yml").write_text("workflows: {all: []}\n")
    with hold(tmp_path / ".steps.lock"), pytest.raises(SystemExit):
        steps.main(tmp_path)
    assert "ELMO114" in capsys.readouterr().out
    (tmp_path / "project.lock").write_text("pretrain:\n")  # a power cut, too
    steps.main(tmp_path)
    assert "ELMO114" not in capsys.readouterr().out
    assert not (tmp_path / "project.lock").exists()


@pytest.mark.parametrize("left", ["", "pretrain:\n", "- 1\n"])
def test_a_damaged_list_of_the_steps_that_are_done_is_removed(tmp_path, left):
    lock = tmp_path / "project.lock"
    lock.write_text(left)
    steps.remove_damaged(lock)
    assert not lock.exists()
    lock.write_text("pretrain:\n  cmd: x\n")
    steps.remove_damaged(lock)
    assert lock.exists()


def test_each_dev_belongs_to_a_treebank(elmo, inputs, tmp_path):
    dev = "--dev", inputs / "train.conllu"
    result = elmo("init", inputs / "text", tmp_path / "out", "--lang", "de", *dev)
    assert result.exit_code == 1 and "ELMO131" in result.text
    same = "--treebank", inputs / "train.conllu", *dev
    result = elmo("init", inputs / "text", tmp_path / "out", "--lang", "de", *same)
    assert result.exit_code == 1 and "as --treebank and as its --dev" in result.text


def test_dev_sentences_need_the_annotation_of_the_others(elmo, inputs, tmp_path):
    """Else all scores are 0 at the end."""
    dev = tmp_path / "names.iob"
    dev.write_text("Anna|B-PER liest|O\n" * 10)
    treebank = "-t", inputs / "train.conllu", "--dev", dev
    result = elmo("init", inputs / "text", tmp_path / "out", "--lang", "de", *treebank)
    assert result.exit_code == 1
    assert "ELMO051" in result.text and "has no tags (XPOS)" in result.text


@pytest.mark.parametrize(
    "name, content, problem",
    [
        ("bad.conllu", "1\tAnna\n", "line 1: there are 2 columns"),
        (
            "bad.conllu",
            made_up.CONLLU.replace("\t2\tnsubj", "\tx\tnsubj"),
            "2: the head is",
        ),
        (
            "bad.conllu",
            made_up.CONLLU.replace("\t0\troot", "\t4\tobj"),
            "go in a circle",
        ),
        ("bad.conllu", "", "has no tags, no heads and no entities"),
        ("bad.conllu", made_up.CONLLU, "has 1 Docs: too few"),
        (
            "bad.conllu",
            "\n" + made_up.CONLLU.replace("Anna", "\xc4nna"),
            "line 2 is not UTF-8",
        ),
        ("bad.conllu.gz", made_up.CONLLU, "is not readable"),
        ("bad.iob", "Anna B-PER\nBonn LOC\n", "line 2: the tag is 'LOC'"),
        ("bad.conll", "Anna B-PER\nMaier E-PER\n", "line 2: the tag is 'E-PER'"),
        ("bad.iob", "Anna|B-PER in|O\nBonn|LOC .|O\n", "line 2: the tag is 'LOC'"),
        (
            "bad.conllu",
            re.sub(r"(?m)^(\d\t)\S+", r"\1_", made_up.CONLLU),
            "5 of its words are withheld",
        ),
        (
            "bad.conllu",
            made_up.CONLLU.replace("SpaceAfter=No", "NE=B-Buch", 1),
            "line 5: the label of a name is 'Buch'",
        ),
        ("bad.conll", "1 Anna B-PER\n2 lacht O\n", "its words are numbers"),
    ],
)
def test_treebanks_that_are_none(elmo, inputs, tmp_path, name, content, problem):
    path = tmp_path / name
    path.write_text(content, encoding="latin1")
    result = elmo("init", inputs / "text", tmp_path / "out", "--lang", "de", "-t", path)
    assert result.exit_code == 1
    assert problem in result.text and "Traceback" not in result.text
