import os
import re
import threading
from pathlib import Path

import pytest

from spacy_elmo.storage import replacing


def named(path):
    """The end of an error that names a file."""
    return re.escape(repr(str(path))) + "$"


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "text.txt"  # in a folder that is made
    with replacing(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / ("a" * 250)  # the temporary name is too long
    with pytest.raises(OSError, match=named(path)), replacing(path):
        pass
    path = tmp_path / "text.txt"
    with pytest.raises(OSError, match=named(path)), replacing(path) as temporary:
        temporary.unlink()  # by somebody else
    assert not path.exists()


def test_a_full_disk_is_named(tmp_path):
    """Here by the limit of a file's size."""
    resource = pytest.importorskip("resource", reason="not on Windows")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    path = tmp_path / "text.txt"
    try:
        with pytest.raises(OSError, match=named(path)), replacing(path) as temporary:
            temporary.write_text("a" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "far").mkdir()
    link, path = tmp_path / "text.txt", tmp_path / "far" / "text.txt"
    link.symlink_to(path)  # also before there is a file
    for text in ("old", "new"):
        with replacing(link) as temporary:
            temporary.write_text(text)
        assert link.is_symlink() and path.read_text() == text


def test_a_pipe_without_a_path_is_written_to():
    """Such is that of /dev/stdout."""
    if not os.path.isdir("/dev/fd"):
        pytest.skip("no such names here")
    end, start = os.pipe()
    with replacing(Path(f"/dev/fd/{start}")) as target:
        target.write_text("text")
    os.close(start)
    with os.fdopen(end) as pipe:
        assert pipe.read() == "text"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_to(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with replacing(pipe) as target:
        target.write_text("text")
    reader.join(timeout=60)
    assert read == ["text"]
