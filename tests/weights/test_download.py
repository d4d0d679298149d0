"""Against a server on localhost that breaks off, forgets and lies as real ones do."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import spacy

from spacy_elmo.bilm import BiLM
from spacy_elmo.errors import DownloadError, MissingWeights, WeightsError
from spacy_elmo.weights import addresses, download, resolve
from spacy_elmo.weights.addresses import File, Published
from spacy_elmo.weights.cache import cache_folder
from spacy_elmo.weights.record import find_change, read_record


@pytest.fixture
def server(tiny_weights, tmp_path):
    """Serves the tiny model as AllenNLP's and NLPL's hosts do."""
    files = {
        "/m/elmo_m_options.json": (tiny_weights / "options.json").read_bytes(),
        "/m/elmo_m_weights.hdf5": (tiny_weights / "weights.hdf5").read_bytes(),
    }
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.write(tiny_weights / "options.json", "options.json")
        zipped.write(tiny_weights / "weights.hdf5", "model.hdf5")
    files["/7.zip"] = archive.read_bytes()
    state = SimpleNamespace(
        files=files, requests=[], breaks=[], ranges=True, etag="one", lie=0,
        delay=0.0,
    )  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            state.requests.append((self.path, asked))
            data = state.files.get(self.path)
            if data is None:
                return self.send_error(404)
            start = 0
            if asked and state.ranges and self.headers["If-Range"] == state.etag:
                start = int(asked[len("bytes=") : -1])
            self.send_response(206 if start else 200)
            self.send_header("ETag", state.etag)
            self.send_header("Content-Length", str(len(data) - start + state.lie))
            self.end_headers()
            end = len(data)
            if state.breaks:
                end = start + state.breaks.pop(0)
            time.sleep(state.delay)
            self.wfile.write(data[start:end])

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    state.host = f"http://localhost:{httpd.server_port}"
    yield state
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture(autouse=True)
def published(server, tmp_path, monkeypatch):
    """The table of addresses with that server in the place of the hosts."""
    monkeypatch.setenv("SPACY_ELMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "PAUSE", 0.01)
    monkeypatch.setattr(download, "CHUNK_BYTES", 100)
    model = Published(
        [server.host],
        [File("m/elmo_m_options.json"), File("m/elmo_m_weights.hdf5")],
        "m",
    )
    monkeypatch.setitem(addresses.MODELS, "allennlp/m", model)
    monkeypatch.setattr(addresses, "NLPL_HOSTS", [server.host])
    return model


def get(name="allennlp/m", **options):
    return download.download(name, silent=True, **options)


def assert_is_the_model(path, tiny_weights):
    words = [["She", "made", "a", "play"]]
    found, wanted = (BiLM.from_path(p).encode(words)[0] for p in (path, tiny_weights))
    assert (found[0] == wanted[0]).all()


@pytest.mark.parametrize("name", ["allennlp/m", "nlpl/7"])
def test_a_downloaded_model_works_by_its_name(name, tiny_weights):
    with pytest.raises(MissingWeights, match=f"ELMO103.*elmo download {name}"):
        resolve(name)
    path = get(name)
    assert resolve(name) == path and cache_folder() in path.parents
    assert_is_the_model(path, tiny_weights)
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy_elmo.BiLM.v1", "weights": name}
    nlp.add_pipe("elmo", config={"model": model})
    assert nlp("a play")[1]._.elmo.shape == (3, 12)
    # Nothing of the way is left, and nothing is fetched twice.
    found = sorted(p.name for p in path.parent.iterdir())
    assert found == [path.name, *[f"{path.name}.download.json"] * (name == "nlpl/7")]


def test_what_is_here_is_not_fetched_again_unless_forced(server):
    get()
    n = len(server.requests)
    get()
    assert len(server.requests) == n
    get(force=True)
    assert len(server.requests) == 2 * n


def test_a_broken_connection_is_resumed_by_itself(server, tiny_weights):
    server.breaks = [10_000, 100, 2_000]  # of the options all comes at once
    path = get()
    assert_is_the_model(path, tiny_weights)
    ranges = [asked for url, asked in server.requests if url.endswith("hdf5")]
    assert ranges == [None, "bytes=100-", "bytes=2100-"]


def test_a_break_that_lasts_is_an_error_and_the_next_call_goes_on(server, tiny_weights):
    server.breaks = [10_000, *[1000] * download.TRIES]
    with pytest.raises(DownloadError, match="ELMO101.*after 4,000 bytes"):
        get()
    with pytest.raises(MissingWeights):
        resolve("allennlp/m")
    assert_is_the_model(get(), tiny_weights)
    assert server.requests[-1][1] == "bytes=4000-"


@pytest.mark.parametrize("ranges, etag", [(False, "one"), (True, "two")])
def test_without_ranges_or_with_a_new_file_it_starts_over(
    server, tiny_weights, ranges, etag
):
    server.breaks = [10_000, *[1000] * download.TRIES]
    with pytest.raises(DownloadError):
        get()
    server.ranges, server.etag = ranges, etag
    assert_is_the_model(get(), tiny_weights)


def test_the_second_host_is_asked_where_the_first_fails(
    server, published, tiny_weights, monkeypatch
):
    dead = "http://localhost:9"
    for hosts in ([dead, server.host], [f"{server.host}/gone", server.host]):
        model = published._replace(hosts=hosts)
        monkeypatch.setitem(addresses.MODELS, "allennlp/m", model)
        assert_is_the_model(get(force=True), tiny_weights)


def test_all_hosts_are_named_where_none_answers(server, published, monkeypatch):
    hosts = ["http://localhost:9", f"{server.host}/gone"]
    model = published._replace(hosts=hosts)
    monkeypatch.setitem(addresses.MODELS, "allennlp/m", model)
    with pytest.raises(DownloadError, match=r"ELMO101.*:9/m/.*gone/m/.*HTTP 404"):
        get()


def test_a_wrong_length_is_an_error(server):
    server.lie = 5
    with pytest.raises(DownloadError, match="ELMO101.*after"):
        get()


def test_a_wrong_digest_is_an_error_and_a_right_one_is_none(
    server, published, monkeypatch
):
    weights = published.files[1]
    right = hashlib.sha256(server.files["/" + weights.path]).hexdigest()
    for digest in ("0" * 64, right):
        files = [published.files[0], weights._replace(sha256=digest)]
        model = published._replace(files=files)
        monkeypatch.setitem(addresses.MODELS, "allennlp/m", model)
        if digest != right:
            with pytest.raises(DownloadError, match="ELMO102.*thrown away"):
                get()
        else:
            assert get().exists()


@pytest.mark.parametrize("name", ["allennlp/m", "nlpl/7"])
def test_two_downloads_at_once_are_one(server, tiny_weights, name):
    server.delay = 0.3
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: get(name), range(2)))
    assert paths[0] == paths[1]
    assert_is_the_model(paths[0], tiny_weights)
    urls = [url for url, _ in server.requests]
    assert len(urls) == len(set(urls))


def test_who_waits_for_another_download_is_told_so(server, capsys):
    server.delay = 0.3
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: download.download("allennlp/m"), range(2)))
    assert "Another process is downloading allennlp/m" in capsys.readouterr().out


def test_the_lock_of_a_killed_download_holds_up_nobody(tiny_weights):
    lock = cache_folder() / "allennlp" / ".m.lock"
    code = (
        "import time; from pathlib import Path; from spacy_elmo.storage import "
        "hold\nwith hold(Path({!r}), print): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code.format(str(lock))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGKILL)
    assert lock.is_file()
    assert_is_the_model(get(), tiny_weights)


@pytest.mark.parametrize("name", ["allennlp/m", "nlpl/7"])
def test_a_damaged_model_is_noticed_and_fetched_again_by_force(name, tiny_weights):
    path = get(name)
    file = path / "elmo_m_weights.hdf5" if path.is_dir() else path
    data = bytearray(file.read_bytes())
    wanted = hashlib.sha256(data).hexdigest()
    assert find_change(path) is None
    assert read_record(path)[file.name] == wanted
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(DownloadError, match=f"ELMO106.*{wanted}.*{name} --force"):
        get(name)
    get(name, force=True)
    assert_is_the_model(get(name), tiny_weights)


def test_a_model_without_a_file_or_with_a_bad_record_is_damaged():
    path = get()
    (path / "elmo_m_options.json").unlink()
    with pytest.raises(DownloadError, match="ELMO106.*options.json is missing"):
        get()
    (path / "download.json").write_text("[")
    with pytest.raises(DownloadError, match="ELMO106.*not valid JSON"):
        get()


def test_a_model_without_a_record_is_not_compared():
    path = get()
    (path / "download.json").unlink()
    assert get() == path and read_record(path) == {}


def test_the_digests_that_came_are_known_of_a_file_too():
    path = get()
    record = json.loads((path / "download.json").read_text())
    assert read_record(path / "elmo_m_weights.hdf5") == record["sha256"]
    assert sorted(record["sha256"]) == ["elmo_m_options.json", "elmo_m_weights.hdf5"]


def test_what_is_no_model_is_not_kept(server, tmp_path):
    good = server.files["/m/elmo_m_weights.hdf5"]
    server.files["/m/elmo_m_weights.hdf5"] = b"<html>Not found</html>"
    with pytest.raises(WeightsError):
        get()
    with pytest.raises(MissingWeights):
        resolve("allennlp/m")
    server.files["/m/elmo_m_weights.hdf5"] = good
    assert get().is_dir()


def test_a_cache_folder_that_cannot_be_written_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPACY_ELMO_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="ELMO105.*SPACY_ELMO_CACHE"):
        get()


@pytest.mark.parametrize("name", ["allennlp/huge", "nlpl/x", "nlpl/", "nlpl/../7"])
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(DownloadError, match="ELMO100.*allennlp/original"):
        get(name)


def test_the_official_models_have_their_addresses():
    model = addresses.find_published("allennlp/original")
    assert [f"{model.hosts[0]}/{file.path}" for file in model.files] == [
        "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
        f"elmo_2x4096_512_2048cnn_2xhighway_{kind}"
        for kind in ("options.json", "weights.hdf5")
    ]


def test_a_path_goes_before_a_published_name(tiny_weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_weights, tmp_path / "allennlp" / "m")
    assert resolve("allennlp/m").resolve() == tmp_path / "allennlp" / "m"
