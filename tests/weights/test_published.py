"""Against a server on localhost that breaks off, forgets and lies as real ones do."""

import shutil
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
from spacy_elmo.weights import published, resolve
from spacy_elmo.weights.published import (
    MODELS,
    Published,
    cache_folder,
)


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
    # `length` takes the length of a file and gives what the header says, or None.
    state = SimpleNamespace(
        files=files, requests=[], status=200, length=str, delay=0.0, end=None,
        location=None,
    )  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.requests.append(self.path)
            data = state.files.get(self.path)
            if data is None:
                return self.send_error(404)
            self.send_response(state.status)
            if state.location is not None:
                self.send_header("Location", state.location)
            length = state.length(len(data))
            if length is not None:
                self.send_header("Content-Length", length)
            self.end_headers()
            time.sleep(state.delay)
            self.wfile.write(data[: state.end])

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    state.host = f"http://localhost:{httpd.server_port}"
    yield state
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture(autouse=True)
def addresses(server, tmp_path, monkeypatch):
    """Published models on that server."""
    monkeypatch.setenv("SPACY_ELMO_CACHE", str(tmp_path / "cache"))
    names = "m/elmo_m_options.json", "m/elmo_m_weights.hdf5"
    model = Published("m", [f"{server.host}/{name}" for name in names])
    monkeypatch.setitem(MODELS, "allennlp/m", model)
    monkeypatch.setattr(published, "NLPL", server.host)


def get(name="allennlp/m", **options):
    return published.download(name, silent=True, **options)


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
    # Nothing of the way is left.
    folder = cache_folder() / name
    assert list(folder.parent.iterdir()) == [folder]


def test_what_is_here_is_not_fetched_again_unless_forced(server):
    get()
    n = len(server.requests)
    get()
    assert len(server.requests) == n
    get(force=True)
    assert len(server.requests) == 2 * n


@pytest.mark.parametrize(
    "length, end",
    [
        (str, 5_000),  # breaks off
        (lambda n: str(n + 5), None),  # promises more
        (lambda n: None, 5_000),  # breaks off where nobody said how much there is
        (lambda n: str(n - 5), None),  # promises less
    ],
)
@pytest.mark.parametrize("name", ["allennlp/m", "nlpl/7"])
def test_a_part_of_a_file_is_not_kept(server, tiny_weights, name, length, end):
    server.length, server.end = length, end
    with pytest.raises((DownloadError, WeightsError), match=r"ELMO(101|00[456])"):
        get(name)
    with pytest.raises(MissingWeights):
        resolve(name)
    server.length, server.end = str, None
    assert_is_the_model(get(name), tiny_weights)


@pytest.mark.parametrize("length", ["abc", "-1", "", "1e9", None])
def test_odd_lengths_do_no_harm(server, tiny_weights, length):
    server.length = lambda n: length
    assert_is_the_model(get(), tiny_weights)


def test_contradictory_lengths_are_a_clear_error(server):
    server.length = lambda n: f"{n}, {n + 1}"
    with pytest.raises(DownloadError, match="ELMO101.*m_options.json.*Content-Length"):
        get()


@pytest.mark.parametrize("status", [206, 403, 500])
def test_other_answers_are_clear_errors(server, status):
    server.status = status
    with pytest.raises(DownloadError, match=f"ELMO101.*HTTP {status}\\.$"):
        get()


@pytest.mark.parametrize(
    "location", ["http://[", "http://\x80/", "file:///x", "/7.zip"]
)
def test_a_redirect_to_nowhere_is_a_clear_error(server, location):
    server.status, server.location = 302, location
    with pytest.raises(DownloadError, match="ELMO101.*localhost.*/7.zip"):
        get("nlpl/7")


def test_a_server_that_does_not_answer_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(published, "NLPL", "http://localhost:9")
    with pytest.raises(DownloadError, match="ELMO101.*localhost:9/7.zip.*Try again"):
        get("nlpl/7")


def test_a_body_without_length_does_not_fill_the_disk(server, monkeypatch):
    server.length = lambda n: None
    server.files["/7.zip"] = bytes(300_000)
    monkeypatch.setattr(published, "MAX_BYTES", 100_000)
    with pytest.raises(DownloadError, match=r"ELMO101.*more than 100,000 bytes\.$"):
        get("nlpl/7")
    assert not any(path.is_file() for path in cache_folder().rglob("*"))


def test_a_disk_that_takes_no_more_is_a_clear_error():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        with pytest.raises(DownloadError, match="ELMO115.*too large.*Free space"):
            get()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not any(path.is_file() for path in cache_folder().rglob("*"))


def test_what_is_here_needs_no_cache_that_can_be_written(monkeypatch):
    path = get()

    def refuse(path):
        raise PermissionError

    monkeypatch.setattr(published, "hold", refuse)  # root may write everywhere
    assert get() == path
    with pytest.raises(DownloadError, match="ELMO115"):
        get(force=True)


@pytest.mark.parametrize("name", ["allennlp/m", "nlpl/7"])
def test_two_downloads_at_once_are_one(server, tiny_weights, name):
    server.delay = 0.3
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: get(name), range(2)))
    assert paths[0] == paths[1]
    assert_is_the_model(paths[0], tiny_weights)
    assert len(server.requests) == len(set(server.requests))


@pytest.mark.parametrize("name", ["allennlp/m", "nlpl/7"])
def test_a_damaged_model_is_fetched_again_by_force(name, tiny_weights):
    path = get(name)
    file = path / "elmo_m_weights.hdf5" if path.is_dir() else path
    file.write_bytes(file.read_bytes()[:1000])
    get(name, force=True)
    assert_is_the_model(get(name), tiny_weights)


@pytest.mark.parametrize(
    "name, like", [("original", "allennlp/original"), ("en_elmo", "en_elmo_sm")]
)
def test_part_of_a_name_gets_a_hint(name, like):
    with pytest.raises(MissingWeights, match=rf"ELMO001.*Did you mean {like}\b"):
        resolve(name)


def test_what_is_no_model_is_not_kept(server, tmp_path):
    good = server.files["/m/elmo_m_weights.hdf5"]
    server.files["/m/elmo_m_weights.hdf5"] = b"<html>Not found</html>"
    with pytest.raises(WeightsError, match=rf"{server.host}/m/elmo_m_weights.hdf5"):
        get()
    with pytest.raises(MissingWeights):
        resolve("allennlp/m")
    server.files["/m/elmo_m_weights.hdf5"] = good
    assert get().is_dir()


def test_a_cache_folder_that_cannot_be_written_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPACY_ELMO_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="ELMO115.*SPACY_ELMO_CACHE"):
        get()


def test_without_a_home_the_variable_is_named(monkeypatch):
    """As a user has none who is not in /etc/passwd."""

    def getpwuid(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pytest.importorskip("pwd"), "getpwuid", getpwuid)
    for variable in ("SPACY_ELMO_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    for ask in (lambda: get("nlpl/7"), lambda: resolve("nlpl/7")):
        with pytest.raises(MissingWeights, match="ELMO104.*Set SPACY_ELMO_CACHE"):
            ask()


def test_what_a_killed_download_has_left_is_removed(server):
    left = cache_folder() / "allennlp" / ".m.a1b2c3d4"
    (left / "m").mkdir(parents=True)
    (left / "m" / "elmo_m_weights.hdf5").write_bytes(b"a part")
    get()
    assert [path.name for path in left.parent.iterdir()] == ["m"]


LONG = "nlpl/" + 5000 * "7"


@pytest.mark.parametrize(
    "name", ["allennlp/huge", "nlpl/x", "nlpl/", "nlpl/../7", LONG]
)
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(DownloadError, match="ELMO100.*allennlp/original"):
        get(name)


def test_the_official_models_have_their_addresses():
    assert MODELS["allennlp/original"].urls == [
        "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
        f"elmo_2x4096_512_2048cnn_2xhighway_{kind}"
        for kind in ("options.json", "weights.hdf5")
    ]


def test_a_path_goes_before_a_published_name(tiny_weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_weights, tmp_path / "allennlp" / "m")
    assert resolve("allennlp/m").resolve() == tmp_path / "allennlp" / "m"
