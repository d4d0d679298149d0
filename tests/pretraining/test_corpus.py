import json
import shutil

import numpy as np
import pytest
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from spacy_elmo.bilm.characters import words_to_ids
from spacy_elmo.errors import CorpusError
from spacy_elmo.pretraining import corpus_files
from spacy_elmo.pretraining.config import CorpusSettings, VocabularySettings
from spacy_elmo.pretraining.corpus import load_corpora, load_corpus
from spacy_elmo.pretraining.tokenizer import Tokenizer
from spacy_elmo.pretraining.vocabulary import SPECIAL

TEXT = "b a b\na c\n\n\nb <S> d\n"


def words_of(corpus, i):
    return " ".join(corpus.words[k] for k in corpus.document(i))


def test_sentences_are_ranked_ids_closed_by_their_end(make_corpus):
    corpus = make_corpus(TEXT, min_count=2)
    assert corpus.words == [*SPECIAL, "b", "a", "c", "d"]
    assert corpus.vocab_size == 5
    assert [words_of(corpus, i) for i in range(corpus.n_documents)] == [
        "b a b </S> a c </S>", "b <UNK> d </S>"
    ]  # fmt: skip
    assert corpus.counts.sentences == 3
    assert corpus.counts.characters == 7 * 2 + 4  # "<S>" and its blank are 4
    # "<S>", "c" and "d"
    assert (corpus.counts.words, corpus.counts.unknown) == (8, 3)
    assert np.array_equal(corpus.characters, words_to_ids(corpus.words, 16))
    assert corpus.in_vocabulary(np.array([0, 4, 5, 6])).tolist() == [0, 4, 2, 2]


def test_a_given_vocabulary_stands_in_front(make_corpus):
    corpus = make_corpus(TEXT, vocabulary=[*SPECIAL, "unseen", "a"])
    assert corpus.vocab_size == 5
    assert corpus.words[:5] == [*SPECIAL, "unseen", "a"]
    assert words_of(corpus, 0) == "b a b </S> a c </S>"


def test_words_with_odd_characters_survive(make_corpus):
    words = ["a\u2028b", "\x85x", "\x1cy", "\u00e9"]
    line = json.dumps({"tokens": [*words, "a\rb", "c\nd", " "]})
    corpus = make_corpus(line + "\n", name="text.jsonl")
    assert [corpus.words[i] for i in corpus.document(0)] == [
        *words, "a b", "c d", "</S>"
    ]  # fmt: skip


def test_the_cache_is_reused_until_something_changes(
    make_corpus, tmp_path, monkeypatch
):
    first = make_corpus(TEXT)
    copy = tmp_path / "copy"
    copy.mkdir()

    def again(text, n_process=1, **limits):
        # In another folder, at another time.
        (copy / "text.txt").write_text(text)
        settings = CorpusSettings(tokenized=True, n_process=n_process)
        tokenizer = Tokenizer({"lang": "en"}, settings)
        vocabulary = VocabularySettings(**{"min_count": 1, **limits})
        files, cache = [copy / "text.txt"], tmp_path / "text.txt.cache"
        return load_corpus(files, cache, tokenizer, vocabulary, 16)

    with monkeypatch.context() as patch:
        patch.setattr(corpus_files, "tokenize", None)
        assert np.array_equal(again(TEXT).tokens, first.tokens)
        again(TEXT, n_process=2)
    assert again(TEXT, min_count=2).vocab_size == 5
    assert len(again(TEXT + "e\n", min_count=2).tokens) == len(first.tokens) + 2


@pytest.mark.parametrize(
    "name", ["meta.json", "tokens.bin", "characters.bin", "words.txt"]
)
def test_a_damaged_cache_is_made_anew(make_corpus, tmp_path, name):
    wanted = make_corpus(TEXT).tokens.tolist()
    (damaged,) = tmp_path.rglob(name)
    damaged.write_bytes(b"")
    assert make_corpus(TEXT).tokens.tolist() == wanted


def test_a_full_disk_is_named(make_corpus, tmp_path):
    """Here by the limit of a file's size."""
    resource = pytest.importorskip("resource", reason="not on Windows")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(CorpusError, match="ELMO115.*cache cannot be written"):
            make_corpus("a b a b\n\n" * 900)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.rglob("*.making"))


def test_several_processes_make_the_same_corpus(make_corpus):
    text = "".join(f"word{i % 7} is {i}\n\n" for i in range(200))
    one = make_corpus(text, name="one.txt")
    two = make_corpus(text, name="two.txt", settings={"n_process": 2})
    assert one.words == two.words
    assert np.array_equal(one.tokens, two.tokens)
    assert np.array_equal(one.starts, two.starts)


def test_the_cache_is_made_anew_for_other_code(make_corpus, tmp_path, monkeypatch):
    code = tmp_path / "code.py"
    code.write_text("x = 1")
    make_corpus(TEXT, code=code)
    monkeypatch.setattr(corpus_files, "tokenize", None)
    assert make_corpus(TEXT, code=code).n_documents == 2
    code.write_text("x = 2")
    with pytest.raises(TypeError):
        make_corpus(TEXT, code=code)


def in_epoch(corpus, i):
    """How often each document is read in an epoch, by file."""
    read = np.bincount(corpus.epoch(i, seed=3), minlength=corpus.n_documents)
    return [read[corpus.sources == source] for source in range(len(corpus.weights))]


def test_files_are_read_as_often_as_their_weights_say(make_corpus):
    texts = ["".join(f"{name}{i} x\n\n" for i in range(10)) for name in "abc"]
    weights = {"text-0": 0.3, "*-2.*": 2.0}
    corpus = make_corpus(texts, settings={"weights": weights})
    assert corpus.weights == [0.3, 1.0, 2.0]
    epochs = [in_epoch(corpus, i) for i in range(10)]
    for rare, plain, twice in epochs:
        assert (rare.sum(), rare.max()) == (3, 1)
        assert (plain == 1).all() and (twice == 2).all()
    # Ten epochs read each document of weight 0.3 three times, in turn.
    assert (sum(epoch[0] for epoch in epochs) == 3).all()
    assert not np.array_equal(epochs[0][0], epochs[1][0])
    assert corpus.documents_per_epoch == 33
    assert corpus.tokens_per_epoch == pytest.approx(33 * 3)
    assert np.array_equal(corpus.epoch(4, seed=1), corpus.epoch(4, seed=1))
    assert not np.array_equal(corpus.epoch(4, seed=1), corpus.epoch(4, seed=2))


def test_the_targets_of_an_epoch_are_counted(make_corpus):
    corpus = make_corpus(TEXT, min_count=2)
    # Of the ends of sentences, one is predicted forward and the other backward.
    wanted = {"<S>": 1.5, "</S>": 1.5, "<UNK>": 3, "b": 3, "a": 2}
    assert dict(zip(corpus.words, corpus.targets)) == wanted


def test_the_targets_follow_the_weights_of_files(make_corpus):
    texts = ["a\n\n" * 10, "b\n\n" * 10]
    corpus = make_corpus(texts, settings={"weights": {"text-0": 0.3}})
    targets = dict(zip(corpus.words, corpus.targets))
    assert targets["a"] == pytest.approx(3) and targets["b"] == 10
    assert targets["</S>"] == pytest.approx(13 / 2)


def test_the_vocabulary_is_that_of_the_text_as_it_is_read(make_corpus):
    texts = ["rare rare rare\n", "frequent frequent\n"]
    corpus = make_corpus(texts, settings={"weights": {"text-0": 0.3}})
    assert corpus.words[3:] == ["frequent", "rare"]
    assert corpus.vocab_size == 4
    assert corpus.counts.words == pytest.approx(2.9)
    assert corpus.counts.unknown == pytest.approx(0.9)


@pytest.mark.parametrize("name", ["text.jsonl", "text.txt"])
def test_a_long_document_is_dealt_out_in_parts(make_corpus, name):
    """Else rows would read short documents again and again meanwhile."""
    lines = [f"w{i} x" for i in range(10_000)]
    text = json.dumps({"text": "\n".join(lines)})
    corpus = make_corpus(text if name == "text.jsonl" else " ".join(lines), name=name)
    lengths = np.diff(corpus.starts)
    assert len(lengths) > 1 and lengths.max() < 11_000
    assert corpus.sources.tolist() == [0] * len(lengths)
    words = [w for i in range(len(lengths)) for w in words_of(corpus, i).split()]
    assert [w for w in words if w != "</S>"] == " ".join(lines).split()


def test_a_weight_for_no_file_is_an_error(make_corpus):
    with pytest.raises(CorpusError, match=r"ELMO051.*corpus\.weights\] wiki.*none"):
        make_corpus(["a\n", "b\n"], settings={"weights": {"wiki*": 0.3}})


def test_words_that_the_encoder_cuts_are_counted(make_corpus):
    # 16 characters leave 14 bytes, and a syllable of Hangul takes three.
    corpus = make_corpus(
        "fourteen-bytes fifteen-bytes-x \ud55c\uad6d\uc5b4\ub9d0\ub4e4\n"
    )
    assert corpus.counts.cut == 2


def test_several_paths_are_one_corpus(make_settings, tmp_path, capsys):
    settings = make_settings()
    folder = tmp_path / "more"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("the dog barks .\n" * 30)
    around = tmp_path / "more" / ".." / "more"
    paths = [str(tmp_path / "train.txt"), str(folder), str(around / "*.txt")]
    overrides = {"paths.train": paths, "paths.dev": str(folder)}
    settings = make_settings(overrides=overrides)
    # One that is given twice, by whatever path, is read once.
    train, dev = load_corpora(settings, tmp_path / "out")
    assert capsys.readouterr().out.count("ELMOW012") == 2
    assert len(train.weights) == 3
    assert train.n_documents == 62
    assert list(dev) == ["a.txt", "b.txt"]


def test_the_files_of_the_run_are_no_text(make_settings, tmp_path):
    """The output may be in the folder of the text, or be that folder."""
    for output in (tmp_path / "out", tmp_path):
        settings = make_settings(overrides={"paths.train": str(tmp_path)})
        first, _ = load_corpora(settings, output)
        names = ("vocab.txt", "log.jsonl", "batch-2.txt", "checkpoint.pt")
        for name in names:
            (output / name).write_text('{"text": "a b c d"}\n')
        again, _ = load_corpora(settings, output)
        assert again.counts == first.counts
        for name in names:
            (output / name).unlink()
        shutil.rmtree(output / "corpus")


@pytest.mark.parametrize("left", ["corpus/train", "corpus/train.making"])
def test_the_files_of_another_run_are_no_text(make_settings, tmp_path, left):
    settings = make_settings(overrides={"paths.train": str(tmp_path)})
    first, _ = load_corpora(settings, tmp_path / "first")
    if left.endswith("making"):  # as of a run that was killed
        (tmp_path / "first" / "corpus" / "train").rename(tmp_path / "first" / left)
    else:
        (tmp_path / "first" / "vocab.txt").write_text("words of a vocabulary")
    second, _ = load_corpora(settings, tmp_path / "second")
    assert second.counts == first.counts
    # Where a file is asked for, it is read.
    given = str(tmp_path / "first" / left / "words.txt")
    settings = make_settings(overrides={"paths.train": given})
    third, _ = load_corpora(settings, tmp_path / "third")
    assert third.counts != first.counts


def test_a_cache_may_be_behind_a_link(make_settings, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "corpus").mkdir(parents=True)
    link = tmp_path / "out" / "corpus" / "train"
    link.symlink_to(tmp_path / "elsewhere")
    load_corpora(make_settings(), tmp_path / "out")
    assert link.is_symlink() and (tmp_path / "elsewhere" / "words.txt").is_file()


@pytest.mark.parametrize("lang", ["xyz", None, 3])
def test_the_language_of_tokenized_text_is_one_that_spacy_knows(
    make_settings, tmp_path, lang
):
    """Commands such as `embed` tokenize with it later."""
    settings = make_settings(overrides={"nlp.lang": lang})
    with pytest.raises(CorpusError):
        load_corpora(settings, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_text_that_lies_where_the_cache_goes_is_kept(make_settings, tmp_path):
    text = tmp_path / "corpus" / "train" / "text.txt"
    text.parent.mkdir(parents=True)
    text.write_text(TEXT)
    settings = make_settings(overrides={"paths.train": str(text.parent)})
    with pytest.raises(CorpusError, match="ELMO111.*text.txt"):
        load_corpora(settings, tmp_path)
    assert text.read_text() == TEXT


@pytest.mark.parametrize("text", ["", "\n \n\t\n"])
def test_an_empty_text_is_an_error(make_corpus, text):
    with pytest.raises(CorpusError, match=r"ELMO050.*text\.txt"):
        make_corpus(text)


def test_held_out_text_has_the_vocabulary_of_the_training_text(make_settings, tmp_path):
    settings = make_settings(overrides={"vocabulary.max_size": 10})
    train, dev = load_corpora(settings, tmp_path / "out")
    assert train.vocab_size == dev["dev.txt"].vocab_size == 10
    assert train.words[:10] == dev["dev.txt"].words[:10]


def test_docs_have_the_sentences_of_their_language(make_corpus, tmp_path):
    """A Greek question ends with what looks like a semicolon."""
    words = ["Ποιος", "είναι", ";", "Είμαι", "εγώ", "."]
    DocBin(docs=[Doc(Vocab(), words=words)]).to_disk(tmp_path / "text.spacy")
    settings = CorpusSettings(tokenized=False)
    for lang, n_sentences in (("el", 2), ("en", 1)):
        tokenizer = Tokenizer({"lang": lang}, settings)
        cache, vocabulary = tmp_path / lang, VocabularySettings(min_count=1)
        corpus = load_corpus(
            [tmp_path / "text.spacy"], cache, tokenizer, vocabulary, 16
        )
        assert corpus.counts.sentences == n_sentences
