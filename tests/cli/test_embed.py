import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import h5py
import numpy as np
import pytest
import spacy
from reference import random_weights, write_weights
from spacy.tokens import DocBin
from srsly import cloudpickle
from tasks import add_task, listener_config, make_examples

from spacy_elmo.bilm import BiLM
from spacy_elmo.pipeline import vector_files
from spacy_elmo.storage import hold

TEXTS = ["She made a play .", "Play it", "She made a play .", "The end of it ."]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):  # and batches
    monkeypatch.setattr(vector_files, "PART_TEXTS", 3)
    monkeypatch.setattr(vector_files, "BATCH_TOKENS", 6)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf8")
    return path


@pytest.fixture
def embed(elmo, tiny_weights, corpus, tmp_path):
    """embed("--layers", "top") -> the datasets of the file that it writes"""

    def run(
        *options, output="out.hdf5", weights=("--weights", tiny_weights), text=corpus
    ):
        path = tmp_path / output
        result = elmo("embed", text, path, *weights, "--tokenized", "-S", *options)
        assert result.exit_code == 0, result.output
        with h5py.File(path, "r") as h5:
            return {name: h5[name][()] for name in h5}

    return run


def test_the_file_is_laid_out_as_allennlps(embed, tiny_weights):
    found = embed()
    index = json.loads(found.pop("sentence_to_index")[0])
    assert sorted(found) == ["0", "1", "2", "3"]
    assert index == {TEXTS[1]: "1", TEXTS[2]: "2", TEXTS[3]: "3"}
    wanted, _ = BiLM.from_path(tiny_weights).encode([text.split() for text in TEXTS])
    for i, layers in enumerate(wanted):
        assert found[str(i)].dtype == np.float32
        np.testing.assert_allclose(
            found[str(i)], layers.transpose(1, 0, 2), rtol=0, atol=1e-5
        )


def test_texts_split_at_spaces_need_no_tokenizer(embed, monkeypatch):
    monkeypatch.setitem(sys.modules, "natto", None)
    assert len(embed("--lang", "ko")) == len(embed(output="en.hdf5"))


def test_the_bilm_of_a_pipeline_reads_by_the_language_of_the_pipeline(
    elmo, tiny_weights, tmp_path
):
    nlp = spacy.blank("de")
    nlp.add_pipe("elmo", config={"model": {"weights": str(tiny_weights)}})
    nlp.initialize()
    nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "text.txt").write_text("Das ist z.B. hier so.", encoding="utf8")
    output = tmp_path / "out.hdf5"
    weights = tmp_path / "pipeline" / "elmo"
    result = elmo("embed", tmp_path / "text.txt", output, "-w", weights, "-S")
    assert result.exit_code == 0, result.output
    with h5py.File(output, "r") as h5:
        assert "z.B." in json.loads(h5["0"].attrs["words"])


def test_a_file_among_the_parts_stays(embed, tmp_path):
    notes = tmp_path / "out.hdf5.parts" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    embed()
    assert notes.read_text() == "mine" and len(list(notes.parent.iterdir())) == 1


def test_each_dataset_has_its_words(embed, tmp_path):
    embed()
    with h5py.File(tmp_path / "out.hdf5", "r") as h5:
        assert json.loads(h5["1"].attrs["words"]) == ["Play", "it"]


def test_one_layer_or_their_mean(embed, elmo, corpus, tiny_weights, tmp_path):
    layers = embed(output="all.h5")["0"]
    by_option = {"top": layers[-1], "mean": layers.mean(0), "1": layers[1]}
    by_option[".2,.3,.5"] = 0.2 * layers[0] + 0.3 * layers[1] + 0.5 * layers[2]
    for option, wanted in by_option.items():
        found = embed("--layers", option, output=f"{option}.h5")["0"]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    low = embed("--dtype", "float16", output="low.h5")["0"]
    assert low.dtype == np.float16
    np.testing.assert_allclose(low, layers, atol=1e-2)
    none = elmo("embed", corpus, tmp_path / "o.h5", "-w", tiny_weights, "-L", 3)
    assert none.exit_code == 1 and "ELMO124" in none.text and "3 layers" in none.text


def test_numbers_too_large_for_half_precision(elmo, corpus, make_options, tmp_path):
    arrays = random_weights(make_options(), 0, 1.0)
    arrays["CNN_proj/W_proj"] *= 1e5  # the token layer is not clipped
    write_weights(tmp_path / "large", make_options(), arrays)
    options = "-w", tmp_path / "large", "-S", "--dtype", "float16"
    result = elmo("embed", corpus, tmp_path / "o.h5", *options)
    assert result.exit_code == 1
    assert "ELMO042" in result.text and "'text 0' has" in result.text
    assert not (tmp_path / "o.h5").exists()


def test_the_trained_mix_of_a_component(embed, nlp, tmp_path):
    tagger = add_task(nlp, "tagger")
    optimizer = nlp.initialize(lambda: make_examples(nlp))
    for _ in range(3):
        nlp.update(make_examples(nlp), sgd=optimizer)
    nlp.to_disk(tmp_path / "pipeline")
    options = "--layers", "mix", "--component", "tagger"
    found = embed(*options, weights=("--pipeline", tmp_path / "pipeline"))
    (mix,) = (n for n in tagger.model.walk() if n.name == "elmo-mix")
    doc = spacy.tokens.Doc(nlp.vocab, words=TEXTS[0].split())
    nlp(doc)
    np.testing.assert_allclose(
        found["0"], mix.predict([doc._.elmo])[0], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    "reads", ["its upstream", "its own biLM", "the only biLM, its own"]
)
def test_a_mix_is_of_the_biLM_that_its_component_reads(
    reads, embed, nlp, bilm_config, calm_weights, tmp_path
):
    calm = bilm_config(calm_weights)
    tok2vec = {"@architectures": "spacy_elmo.ELMo.v1", "bilm": calm}
    if reads == "its upstream":
        nlp.add_pipe("elmo", name="second", config={"model": calm})
        tok2vec = listener_config("second")
    elif reads != "its own biLM":
        nlp.remove_pipe("elmo")
    tagger = add_task(nlp, "tagger", tok2vec=tok2vec)
    nlp.initialize(lambda: make_examples(nlp))
    nlp.to_disk(tmp_path / "pipeline")
    found = embed("--layers", "mix", weights=("--pipeline", tmp_path / "pipeline"))
    doc = spacy.tokens.Doc(nlp.vocab, words=TEXTS[0].split())
    (wanted,) = tagger.model.get_ref("tok2vec").predict([doc])
    np.testing.assert_allclose(found["0"], wanted, rtol=0, atol=1e-5)


def test_a_mix_of_a_biLM_that_does_not_run_is_a_message(
    elmo, corpus, nlp, bilm_config, tmp_path
):
    nlp.add_pipe("elmo", name="second", config={"model": bilm_config()})
    add_task(nlp, "tagger", upstream="second")
    nlp.initialize(lambda: make_examples(nlp))
    nlp.disable_pipe("second")
    nlp.to_disk(tmp_path / "pipeline")
    options = "-L", "mix", "-p", tmp_path / "pipeline"
    result = elmo("embed", corpus, tmp_path / "o.h5", *options)
    assert result.exit_code == 1 and "ELMO031" in result.text


def test_a_mix_needs_a_component_that_has_one(elmo, corpus, tiny_weights, tmp_path):
    result = elmo("embed", corpus, tmp_path / "o.h5", "-w", tiny_weights, "-L", "mix")
    assert result.exit_code == 1 and "ELMO112" in result.text


def test_a_component_that_has_no_mix_is_named(elmo, corpus, nlp, tmp_path):
    nlp.to_disk(tmp_path / "pipeline")
    options = "-p", tmp_path / "pipeline", "-L", "mix", "-c", "taggr"
    result = elmo("embed", corpus, tmp_path / "o.h5", *options)
    assert result.exit_code == 1
    assert "0 of 'taggr'" in result.text and "have one: none" in result.text


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process")
def test_a_file_that_cannot_be_written_is_a_message(
    elmo, tiny_weights, corpus, tmp_path
):
    corpus.write_text("\n".join(20 * TEXTS) + "\n", encoding="utf8")
    output = tmp_path / "out.hdf5"
    run = ["embed", str(corpus), str(output), "-w", str(tiny_weights), "-S"]
    # HDF5 would write again when it closes the file, and when the process ends.
    command = [sys.executable, "-m", "spacy", "elmo", *run]
    limited = f"ulimit -f 20; exec {shlex.join(command)}"
    done = subprocess.run(
        ["bash", "-c", limited], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    printed = done.stdout + done.stderr
    assert "ELMO115" in printed and "Traceback" not in printed
    assert elmo(*run).exit_code == 0
    with h5py.File(output, "r") as h5:
        assert len(h5) == 81


def test_a_pipeline_with_a_sentencizer_resumes_in_another_process(
    corpus, tiny_weights, tmp_path
):
    nlp = spacy.blank("xx")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": {"weights": str(tiny_weights)}})
    nlp.to_disk(tmp_path / "pipeline")
    output = tmp_path / "parts"
    run = ["embed", str(corpus), str(output), "--pipeline", str(tmp_path / "pipeline")]
    for seed in "12":  # of Python's hashes, by which sets are ordered
        done = subprocess.run(
            [sys.executable, "-m", "spacy", "elmo", *run, "--silent"],
            capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_two_processes_give_the_same(embed):
    one, two = embed(), embed("--n-process", 2, output="two.hdf5")
    assert one.keys() == two.keys()
    for name in set(one) - {"sentence_to_index"}:
        np.testing.assert_allclose(one[name], two[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["jsonl", "spacy", "directory"])
def test_other_kinds_of_text_give_the_same(embed, tmp_path, kind):
    path = tmp_path / f"other.{kind}"
    if kind == "jsonl":
        lines = [json.dumps({"tokens": text.split()}) for text in TEXTS]
        path.write_text("\n".join(lines))
    elif kind == "spacy":
        blank = spacy.blank("en")
        docs = [spacy.tokens.Doc(blank.vocab, words=t.split()) for t in TEXTS]
        DocBin(docs=docs).to_disk(path)
    else:
        path.mkdir()
        for i in range(2):
            (path / f"{i}.txt").write_text("\n".join(TEXTS[2 * i : 2 * i + 2]) + "\n")
    wanted, found = embed(), embed(text=path, output="other.hdf5")
    assert wanted.keys() == found.keys()
    for name in set(wanted) - {"sentence_to_index"}:
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options, problem",
    [
        (["--n-process", 0], "ELMO038.*--n-process must be 1 or more, or -1 for all"),
        (["--lang", "en", "-p", "nowhere"], "ELMO126.*leave out --weights and --lang"),
        (["--component", "ner"], "ELMO038.*--component must be left out.*'ner'"),
        (["--layers", ".2,.3,.6"], r"ELMO124.*\[0.2, 0.3, 0.6\] is neither"),
        (["--layers", "a,b"], "ELMO124.*'a,b' is neither"),
        ([], "ELMO050.*empty.txt: it is empty"),
    ],
)
def test_what_cannot_be_embedded(elmo, tiny_weights, tmp_path, options, problem):
    text, output = tmp_path / "empty.txt", tmp_path / "out.hdf5"
    text.write_text("\n\n")
    weights = [] if "-p" in options else ["--weights", tiny_weights]
    result = elmo("embed", text, output, *weights, *options)
    assert result.exit_code == 1 and re.search(problem, result.text), result.text
    assert not output.exists()


def test_code_of_ones_own_is_in_no_process_that_does_not_fork(
    elmo, tiny_weights, tmp_path, monkeypatch
):
    (tmp_path / "code.py").touch()
    (tmp_path / "text.txt").write_text("Hello.\n")
    monkeypatch.setattr("spacy_elmo.cli.embed.get_start_method", lambda: "spawn")
    run = ["embed", tmp_path / "text.txt", tmp_path / "out.hdf5"]
    run += ["--weights", tiny_weights, "--code", tmp_path / "code.py"]
    result = elmo(*run, "--n-process", 2)
    assert result.exit_code == 1 and "ELMO118" in result.text
    assert elmo(*run).exit_code == 0


def test_the_folder_one_is_in_takes_the_parts(
    elmo, corpus, tiny_weights, tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = elmo("embed", corpus, ".", "--weights", tiny_weights)
    assert result.exit_code == 0, result.output
    assert list(Path.cwd().glob("*.hdf5"))


def test_a_stopped_run_goes_on_where_it_was(embed, monkeypatch, tmp_path):
    write, written = vector_files.write_part, []

    def stop_at_the_second(job, part):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(part.path.name)
        write(job, part)

    monkeypatch.setattr(vector_files, "write_part", stop_at_the_second)
    with pytest.raises(AssertionError, match="ELMO116.*Run the same command again"):
        embed()
    assert not (tmp_path / "out.hdf5").exists()
    part = tmp_path / "out.hdf5.parts" / written[0]
    before = part.stat().st_mtime_ns
    written.append("")
    monkeypatch.setattr(
        vector_files,
        "write_part",
        lambda job, part: (written.append(part.path.name), write(job, part)),
    )
    merge = vector_files.merge

    def merge_kept(folder, output):
        assert part.stat().st_mtime_ns == before
        merge(folder, output)

    monkeypatch.setattr(vector_files, "merge", merge_kept)
    found = embed()
    assert written == ["00000-0000000.hdf5", "", "00000-0000001.hdf5"]
    assert len(found) == len(TEXTS) + 1
    assert not (tmp_path / "out.hdf5.parts").exists()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="not on Windows")
def test_two_processes_can_be_interrupted(tiny_weights, tmp_path):
    """Once it waited for them for ever, and each printed a traceback."""
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("She made a play .\n" * 40_000)
    command = ["embed", text, out, "-w", tiny_weights, "-n", 2, "-S"]
    process = subprocess.Popen(
        [sys.executable, "-m", "spacy", "elmo", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(out.glob("[!.]*.hdf5")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        printed, _ = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1, printed
    assert "ELMO116" in printed and "Traceback" not in printed
    assert 0 < len(list(out.glob("[!.]*.hdf5"))) < 40


@pytest.mark.parametrize("name", ["text.txt", "text.jsonl"])
def test_a_line_of_words_is_one_sentence(name, elmo, tiny_weights, tmp_path):
    """As AllenNLP's command and `score` read it."""
    words = "He met Dr . Smith at ten .".split()
    as_json = json.dumps({"tokens": words})
    text = as_json if name.endswith(".jsonl") else " ".join(words)
    (tmp_path / name).write_text(text + "\n")
    out = tmp_path / "out.hdf5"
    result = elmo("embed", tmp_path / name, out, "-w", tiny_weights, "--tokenized")
    assert result.exit_code == 0, result.output
    (wanted,), _ = BiLM.from_path(tiny_weights).encode([words])
    with h5py.File(out) as h5:
        assert np.abs(h5["0"][()].transpose(1, 0, 2) - wanted).max() < 1e-5


def test_texts_are_in_the_order_of_their_files_however_many(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in (100_000, 99_999):
        with h5py.File(folder / f"{number:05}-0000000.hdf5", "w") as h5:
            h5["0"] = np.float32([number])
            h5["0"].attrs["words"] = json.dumps([str(number)])
    vector_files.merge(folder, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as h5:
        assert [h5[name][0] for name in "01"] == [99_999, 100_000]


def test_a_killed_run_loses_no_part(elmo, tiny_weights, tmp_path, monkeypatch):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"Play {i} of it .\n" for i in range(1100)))
    command = [
        "embed", str(corpus), str(tmp_path / "out.hdf5"), "-w", str(tiny_weights),
        "--tokenized", "-S",
    ]  # fmt: skip
    start = [sys.executable, "-m", "spacy", "elmo", *command]
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL)
    parts = tmp_path / "out.hdf5.parts"
    for _ in range(2400):  # two minutes, on a busy machine
        if len(list(parts.glob("*.hdf5"))) >= 1 or process.poll() is not None:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {p.name: p.stat().st_mtime_ns for p in parts.glob("[0-9]*.hdf5")}
    assert kept or (tmp_path / "out.hdf5").exists()
    if kept:
        monkeypatch.undo()  # parts of the size that the command makes
        done = elmo(*command)
        assert done.exit_code == 0, done.output
    with h5py.File(tmp_path / "out.hdf5", "r") as h5:
        assert len(h5) == 1101
        assert json.loads(h5["1099"].attrs["words"])[1] == "1099"


def test_the_same_weights_by_another_path_resume(
    elmo, corpus, tiny_weights, tmp_path, monkeypatch
):
    monkeypatch.chdir(tiny_weights)
    for weights in (tiny_weights, "."):
        result = elmo("embed", corpus, tmp_path / "out", "-w", weights, "-S")
        assert result.exit_code == 0, result.output


def test_parts_of_other_settings_are_not_mixed_in(embed, elmo, corpus, tmp_path):
    out = tmp_path / "folder"
    assert elmo("embed", corpus, out, "--tokenized", "-S").exit_code == 0
    assert elmo("embed", corpus, out, "--tokenized", "-S").exit_code == 0
    result = elmo("embed", corpus, out, "--tokenized", "-S", "--layers", "top")
    assert result.exit_code == 1
    assert "ELMO110" in result.text and "(layers)" in result.text


def test_parts_that_say_not_what_they_are_of_are_not_mixed_in(elmo, corpus, tmp_path):
    out = tmp_path / "folder"
    assert elmo("embed", corpus, out, "--tokenized", "-S").exit_code == 0
    (out / "job.json").unlink()
    result = elmo("embed", corpus, out, "--tokenized", "-S")
    assert result.exit_code == 1 and "has .hdf5 files, but no job" in result.text
    for part in out.glob("*.hdf5"):
        part.unlink()
    assert elmo("embed", corpus, out, "--tokenized", "-S").exit_code == 0


OWN = {"@architectures": "spacy_elmo.ELMo.v1"}


@pytest.fixture
def save_pipeline(nlp, tmp_path):
    """save_pipeline("a", [0, 1, 0]) -> the path of a pipeline with a tagger that
    mixes the layers of the tiny biLM by those w"""
    tagger = add_task(nlp, "tagger")
    nlp.initialize(lambda: make_examples(nlp))
    (mix,) = (n for n in tagger.model.walk() if n.name == "elmo-mix")

    def save(name, w):
        mix.set_param("w", np.asarray(w, dtype=np.float32))
        nlp.to_disk(tmp_path / name)
        return tmp_path / name

    return save


def test_parts_of_another_mix_are_not_mixed_in(elmo, corpus, save_pipeline, tmp_path):
    one, two = save_pipeline("one", [0, 1, 0]), save_pipeline("two", [1, 0, 0])
    command = "embed", corpus, tmp_path / "out", "-S", "-L", "mix", "-p"
    assert elmo(*command, one).exit_code == 0
    (tmp_path / "out" / "00000-0000001.hdf5").unlink()
    result = elmo(*command, two)
    assert result.exit_code == 1
    assert "ELMO110" in result.text and "(mix)" in result.text
    assert elmo(*command, one).exit_code == 0


@pytest.mark.parametrize(
    "tok2vec, old, new, what",
    [
        (listener_config(), "layer_norm = true", "layer_norm = false", "mix"),
        (OWN, "max_length = 256", "max_length = 2", "model"),
    ],
)
def test_parts_of_a_mix_with_other_settings_are_not_mixed_in(
    elmo, corpus, nlp, bilm_config, tmp_path, tok2vec, old, new, what
):
    """The weights are the same: the config was changed by hand."""
    if tok2vec is OWN:
        segmenter = {"@misc": "spacy_elmo.segment_sentences.v1", "max_length": 256}
        tok2vec = {**OWN, "bilm": {**bilm_config(), "segmenter": segmenter}}
    add_task(nlp, "tagger", tok2vec=tok2vec)
    nlp.initialize(lambda: make_examples(nlp))
    nlp.to_disk(tmp_path / "pipeline")
    command = "embed", corpus, tmp_path / "out", "-S", "-L", "mix", "-p"
    assert elmo(*command, tmp_path / "pipeline").exit_code == 0
    path = tmp_path / "pipeline" / "config.cfg"
    config = path.read_text()
    assert old in config
    path.write_text(config.replace(old, new))
    result = elmo(*command, tmp_path / "pipeline")
    assert result.exit_code == 1
    assert "ELMO110" in result.text and f"({what})" in result.text


def test_parts_of_other_sentences_are_not_mixed_in(
    elmo, corpus, save_pipeline, tmp_path
):
    plain = save_pipeline("plain", [0, 0, 0])
    nlp = spacy.load(plain)
    nlp.add_pipe("sentencizer", config={"punct_chars": ["of"]}, before="elmo")
    nlp.to_disk(tmp_path / "cut")
    command = "embed", corpus, tmp_path / "out", "-S", "-p"
    assert elmo(*command, tmp_path / "cut").exit_code == 0
    result = elmo(*command, plain)
    assert result.exit_code == 1 and "(pipeline)" in result.text
    assert elmo(*command, tmp_path / "cut").exit_code == 0


def test_parts_of_another_text_of_the_same_size_are_not_mixed_in(
    elmo, corpus, tmp_path
):
    command = "embed", corpus, tmp_path / "out", "--tokenized", "-S"
    assert elmo(*command).exit_code == 0
    (tmp_path / "out" / "00000-0000001.hdf5").unlink()
    text = corpus.read_text(encoding="utf8")
    corpus.write_text(text.replace("play", "game"), encoding="utf8")
    result = elmo(*command)
    assert result.exit_code == 1
    assert "ELMO110" in result.text and "(files)" in result.text
    # What was written anew and is the same goes on.
    corpus.write_text(text, encoding="utf8")
    os.utime(corpus, (0, 0))
    assert elmo(*command).exit_code == 0


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_text_that_is_not_utf8_is_an_error(elmo, tiny_weights, tmp_path, suffix):
    path = tmp_path / f"latin.{suffix}"
    lines = ["play", "a caf\xe9 play"]
    if suffix == "jsonl":
        lines = [f'{{"text": "{line}"}}' for line in lines]
    path.write_bytes("\n".join(lines).encode("latin1"))
    result = elmo("embed", path, tmp_path / "out", "-w", tiny_weights, "-S")
    assert result.exit_code == 1
    for found in ("ELMO051", path.name, "line 2 is not UTF-8 (byte 0xe9"):
        assert found in result.text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("output", ["out", "out.hdf5"])
def test_what_a_killed_run_left_half_written_is_removed(
    elmo, corpus, tiny_weights, tmp_path, output
):
    folder = tmp_path / ("out" if output == "out" else "out.hdf5.parts")
    names = ("00000-0000000.hdf5", "merged", "job.json")
    leftovers = [folder / f".{name}.1f0c7a0e" for name in names]
    folder.mkdir()
    for path in leftovers:
        path.touch()
    result = elmo("embed", corpus, tmp_path / output, "-w", tiny_weights, "-S")
    assert result.exit_code == 0 and not any(path.exists() for path in leftovers)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"corpus.txt", output}


@pytest.mark.parametrize(
    "file, content, problem",
    [
        ("job.json", '{"jobs": 1}', "ELMO110"),
        ("job.json", "[1]", "ELMO110"),
        ("mine.hdf5", "mine", "but no job.json"),
    ],
)
def test_a_folder_of_other_files_stays_as_it_is(
    elmo, corpus, tiny_weights, tmp_path, file, content, problem
):
    folder = tmp_path / "out"
    folder.mkdir()
    for name in (file, ".mine.hdf5.bak"):
        (folder / name).write_text(content)
    result = elmo("embed", corpus, folder, "-w", tiny_weights, "-S")
    assert result.exit_code == 1 and problem in result.text
    assert {p.read_text() for p in folder.iterdir()} == {content}
    assert len(list(folder.iterdir())) == 2


def test_a_damaged_part_is_named(embed, monkeypatch, tmp_path):
    parts = tmp_path / "out.hdf5.parts"

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(vector_files, "merge", stop)
        with pytest.raises(AssertionError):
            embed()
    part = min(parts.glob("*.hdf5"))
    part.write_bytes(part.read_bytes()[:1000])
    with pytest.raises(AssertionError, match=f"(?s)ELMO051.*{part.name}.*Remove it"):
        embed()
    part.unlink()
    assert len(embed()) == len(TEXTS) + 1


@pytest.mark.parametrize("output", ["out", "out.hdf5"])
def test_two_runs_cannot_write_to_one_output(
    elmo, corpus, tiny_weights, tmp_path, output
):
    command = "embed", corpus, tmp_path / output, "-w", tiny_weights, "-S"
    with hold(tmp_path / f".{output}.lock"):
        result = elmo(*command)
    assert result.exit_code == 1
    assert "ELMO114" in result.text and output in result.text
    assert elmo(*command).exit_code == 0


def test_the_progress_bar_has_an_end(elmo, corpus, tiny_weights, tmp_path):
    result = elmo("embed", corpus, tmp_path / "out", "-w", tiny_weights)
    assert result.exit_code == 0 and "4/4" in result.text
    assert "4 texts are in" in result.text


def test_a_file_is_never_overwritten(embed, elmo, corpus, tiny_weights, tmp_path):
    embed()
    for output in (tmp_path / "out.hdf5", corpus):  # the latter is no folder
        result = elmo("embed", corpus, output, "-w", tiny_weights)
        assert result.exit_code == 1 and "ELMO111" in result.text


@pytest.mark.parametrize(
    "option, value, exit_code",
    [
        ("--layers", "best", 1),
        ("--n-process", "-2", 2),
        ("--dtype", "int8", 2),
        ("--engine", "spark", 2),
    ],
)
def test_an_unknown_option_is_a_message(
    elmo, corpus, tmp_path, option, value, exit_code
):
    result = elmo("embed", corpus, tmp_path / "new" / "out.hdf5", option, value)
    assert result.exit_code == exit_code
    assert not [p for p in (tmp_path / "new").rglob("*") if p.is_file()]
    assert value in result.text or option in result.text
    assert "Traceback" not in result.text


def test_without_ray_its_engine_says_what_to_install(
    elmo, corpus, tiny_weights, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ray", None)
    options = "-w", tiny_weights, "--engine", "ray"
    result = elmo("embed", corpus, tmp_path / "out", *options)
    assert result.exit_code == 1 and "'ray[data]'" in result.text


def test_a_folder_that_is_named_ray_is_not_ray(
    elmo, corpus, tiny_weights, tmp_path, monkeypatch
):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    options = "-w", tiny_weights, "--engine", "ray"
    result = elmo("embed", corpus, tmp_path / "out", *options)
    assert result.exit_code == 1 and "ELMO113" in result.text
    del sys.modules["ray"]  # the folder


@pytest.fixture
def ray_elsewhere(tmp_path, monkeypatch):
    """In Ray's place one worker, which is in a directory of its own."""

    def work(function, items):
        function = cloudpickle.loads(cloudpickle.dumps(function))
        with monkeypatch.context() as context:
            context.chdir(tmp_path / "elsewhere")
            return [function(item) for item in items]

    def from_items(items, **_):
        return SimpleNamespace(
            map=lambda function, **_: SimpleNamespace(
                take_all=lambda: work(function, items)
            )
        )

    (tmp_path / "elsewhere").mkdir()
    data = ModuleType("ray.data")
    data.from_items = from_items
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.data", data)


def test_a_worker_elsewhere_needs_no_path_but_those_of_the_texts(
    embed, tiny_weights, tmp_path, monkeypatch, ray_elsewhere
):
    shutil.copytree(tiny_weights, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    wanted = embed(weights=("-w", "mine"))
    found = embed("--engine", "ray", weights=("-w", "mine"), output="ray.hdf5")
    np.testing.assert_array_equal(found["0"], wanted["0"])


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="needs ray")
def test_two_workers_of_a_ray_cluster_give_the_same(
    embed, tiny_weights, tmp_path, monkeypatch
):
    import ray

    path = tmp_path / "many"
    path.mkdir()
    for i in range(4):
        (path / f"{i}.txt").write_text(TEXTS[i] + "\n")
    wanted = embed(text=path)
    shutil.copytree(tiny_weights, tmp_path / "mine")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    options = "--engine", "ray", "--n-process", 2
    with ray.init(runtime_env={"working_dir": str(tmp_path / "elsewhere")}):
        found = embed(
            *options, text=Path("many"), output="ray.hdf5", weights=("-w", "mine")
        )
    assert wanted.keys() == found.keys()
    for name in set(wanted) - {"sentence_to_index"}:
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=1e-5)


def test_of_two_elmo_components_the_last_is_taken(
    elmo, corpus, bilm_config, calm_weights, tmp_path
):
    """As in doc._.elmo."""
    nlp = spacy.blank("en")
    for name, config in (("a", {}), ("b", {"weights": str(calm_weights)})):
        nlp.add_pipe("elmo", name=name, config={"model": bilm_config(**config)})
    nlp.initialize()
    nlp.to_disk(tmp_path / "two")
    path = tmp_path / "out.hdf5"
    result = elmo("embed", corpus, path, "--pipeline", tmp_path / "two", "-S")
    assert result.exit_code == 0, result.output
    with h5py.File(path, "r") as h5:
        found = h5["1"][()]
    wanted = spacy.load(tmp_path / "two")(TEXTS[1])._.elmo
    np.testing.assert_allclose(found, wanted.transpose(1, 0, 2), atol=1e-5)
