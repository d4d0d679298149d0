import numpy as np
import pytest

from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining.windows import Rows, directions

# Each document is told by its words; their lengths differ widely.
DOCUMENTS = [
    "".join(f"d{i} s{j} x\n" * (1 + i % 3) for j in range(1 + i % 4)) for i in range(10)
]
TEXT = "\n".join(DOCUMENTS)


@pytest.fixture
def corpus(make_corpus):
    return make_corpus(TEXT)


@pytest.fixture
def mixed(make_corpus):
    texts = ["\n".join(DOCUMENTS[:4]), "\n".join(DOCUMENTS[4:])]
    return make_corpus(texts, settings={"weights": {"text-0": 2.0, "text-1": 0.5}})


def test_each_direction_predicts_each_word_of_its_sentences():
    BOS, EOS = 0, 1
    inputs, targets = directions(np.array([5, 6, 7, EOS, 8, EOS, EOS]))
    assert inputs.tolist() == [
        [BOS, 5, 6, 7, BOS, 8, BOS], [EOS, 7, 6, 5, EOS, 8, EOS]
    ]  # fmt: skip
    assert targets.tolist() == [
        [5, 6, 7, EOS, 8, EOS, EOS], [7, 6, 5, BOS, 8, BOS, BOS]
    ]  # fmt: skip


def read_streams(rows, n):
    """Forward targets of n windows, as words: one list per row."""
    windows = [rows.read().targets[0] for _ in range(n)]
    ids = np.concatenate(windows).T
    return [[rows.corpus.words[i] for i in row] for row in ids]


def documents_of(stream):
    """The documents of a stream in order of reading (they differ in "d{i}")."""
    found = [int(word[1:]) for word in stream if word.startswith("d")]
    return [d for k, d in enumerate(found) if k == 0 or found[k - 1] != d]


def test_every_document_is_read_once_an_epoch(corpus):
    rows = Rows(corpus, n_rows=2, steps=7, seed=1)
    streams = read_streams(rows, 60)
    epochs = [[documents_of(s)[e * 5 : e * 5 + 5] for s in streams] for e in range(2)]
    for epoch in epochs:
        assert sorted(epoch[0] + epoch[1]) == list(range(10))
    assert epochs[0] != epochs[1]


def test_a_mix_is_read_by_its_weights(mixed):
    rows = Rows(mixed, n_rows=1, steps=7, seed=1)
    order = [*mixed.epoch(0, seed=1), *mixed.epoch(1, seed=1)]
    assert len(order) == 2 * (2 * 4 + 3)
    lines = [line for d in order for line in DOCUMENTS[d].splitlines()]
    wanted = " ".join(f"{line} </S>" for line in lines).split()
    (stream,) = read_streams(rows, 1 + len(wanted) // 7)
    assert stream[: len(wanted)] == wanted
    assert rows.epoch == pytest.approx(2, abs=0.1)


def test_a_row_reads_its_documents_end_to_end(corpus):
    rows = Rows(corpus, n_rows=2, steps=7, seed=1)
    for stream in read_streams(rows, 20):
        # The last one may be cut.
        order = documents_of(stream)
        lines = [line for d in order for line in DOCUMENTS[d].splitlines()]
        wanted = " ".join(f"{line} </S>" for line in lines)
        assert wanted.startswith(" ".join(stream))


def test_windows_join_without_a_gap_in_both_directions(corpus):
    short = Rows(corpus, n_rows=2, steps=5, seed=0)
    long = Rows(corpus, n_rows=2, steps=35, seed=0)
    windows = [short.read() for _ in range(7)]
    whole = long.read()
    for name in ("inputs", "targets"):
        joined = np.concatenate([getattr(w, name) for w in windows], axis=1)
        assert np.array_equal(joined, getattr(whole, name))


@pytest.mark.parametrize("text", ["corpus", "mixed"])
def test_rows_go_on_from_their_state(request, text):
    corpus = request.getfixturevalue(text)
    rows = Rows(corpus, n_rows=3, steps=4, seed=0)
    for _ in range(33):
        rows.read()
    rows.look_ahead()  # which is not yet read
    again = Rows(corpus, n_rows=3, steps=4, seed=0)
    again.load_positions(rows.positions.tolist())
    assert again.epoch == rows.epoch > 1
    for _ in range(20):
        assert np.array_equal(rows.read().inputs, again.read().inputs)


def test_processes_share_the_rows_among_them(corpus):
    whole = Rows(corpus, n_rows=4, steps=6, seed=0)
    parts = [Rows(corpus, 4, 6, 0, range(first, first + 2)) for first in (0, 2)]
    for _ in range(10):
        shared = [rows.read().targets for rows in parts]
        assert np.array_equal(np.concatenate(shared, axis=2), whole.read().targets)


@pytest.mark.parametrize(
    "n_rows, steps, problem",
    [
        (11, 1, r"documents \(10 in an epoch\) .* for 11 rows"),
        (10, 1000, r"tokens \(.*\) for 10 rows: .* of 1000 tokens"),
    ],
)
def test_a_corpus_too_small_for_its_rows_is_an_error(corpus, n_rows, steps, problem):
    with pytest.raises(CorpusError, match=f"ELMO052.*{problem}"):
        Rows(corpus, n_rows, steps, seed=0)
