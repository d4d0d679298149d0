"""What users would try otherwise, made from the text of the biLM: static vectors of the
bundled model's size (floret), and a tok2vec initialized by `spacy pretrain`.

    python alternatives.py --text '../../../../shared/data/lm/*.txt.xz' --minutes 60

Needs floret (`pip install ".[experiments]"`). What is there already is not made again.
"""

import json
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Iterator, List

import spacy
import typer
from spacy.training.initialize import convert_vectors

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from harness import run_python  # noqa: E402
from run import make_config  # noqa: E402

from spacy_elmo.text.documents import read_documents  # noqa: E402
from spacy_elmo.text.files import find_texts  # noqa: E402

# 20,000 rows of 200 are 16 MB, as the biLM. One thread, which takes two hours for the
# English text: with more, each run makes another file.
FLORET = {
    "model": "cbow", "mode": "floret", "hashCount": 2, "bucket": 20000, "dim": 200,
    "minn": 3, "maxn": 5, "minCount": 5, "epoch": 5, "thread": 1, "verbose": 0,
}  # fmt: skip
# The config of the runs that start from the pretrained tok2vec
RUN = {
    "cfg": "tags", "encoder": "cnn", "set": {}, "limit": 0, "init_tok2vec": None,
}  # fmt: skip
RULES = {"@tokenizers": "spacy.Tokenizer.v1"}
COMPONENTS = str(HERE.parent / "components.py")


def main(
    text: Annotated[str, typer.Option(help="The text of the biLM: file or glob")],
    minutes: Annotated[List[int], typer.Option(help="Of `spacy pretrain`")] = [],  # noqa: B006
    work: Path = HERE.parent / "work",
    vectors: Annotated[str, typer.Option(help="Folder in WORK")] = "vectors",
) -> None:
    """Write WORK/vectors and WORK/pretrained_MINUTES.bin."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / vectors).is_dir():
        make_vectors(text, work, name=vectors)
    if minutes:
        make_tok2vecs(text, sorted(minutes), work)


def make_vectors(
    text: str, work: Path, lang: str = "en", name: str = "vectors"
) -> None:
    import floret

    words, table = work / "words.txt", work / "vectors.floret"
    config = {"nlp": {"tokenizer": RULES}}
    # Not the pipeline that is saved: it comes to know every string of the text.
    make_doc = spacy.blank(lang, config=config).make_doc
    with words.open("w", encoding="utf8") as file:
        for paragraph in paragraphs(text):
            doc = make_doc(paragraph)
            file.write(" ".join(t.text for t in doc if not t.is_space) + "\n")
    floret.train_unsupervised(str(words), **FLORET).save_floret_vectors(str(table))
    words.unlink()
    nlp = spacy.blank(lang, config=config)
    # As `spacy init vectors`, which would ask for the package of Korean's tokenizer.
    convert_vectors(nlp, table, truncate=-1, prune=-1, mode="floret")
    unfinished = work / f"{name}.unfinished"
    nlp.to_disk(unfinished)
    unfinished.rename(work / name)


def make_tok2vecs(
    text: str, minutes: List[float], work: Path, lang: str = "en"
) -> None:
    raw, config_path = work / "raw.jsonl", work / "pretrain.cfg"
    if not raw.is_file():
        unfinished = raw.with_suffix(".unfinished")
        with unfinished.open("w", encoding="utf8") as file:
            for paragraph in paragraphs(text):
                file.write(json.dumps({"text": paragraph}) + "\n")
        unfinished.rename(raw)
    config = make_config(RUN)
    config["nlp"].update(lang=lang, tokenizer=RULES)
    config.to_disk(work / "base.cfg")
    run_python(
        "-m", "spacy", "init", "fill-config", work / "base.cfg", config_path,
        "--pretraining", "--code", COMPONENTS,
    )  # fmt: skip
    before, options = 0.0, []
    for mark in minutes:
        found, output = (
            work / f"pretrained_{mark:g}.bin",
            work / f"pretraining_{mark:g}",
        )
        if not found.is_file():
            command = [
                sys.executable, "-m", "spacy", "pretrain",
                str(config_path), str(output),
                "--code", COMPONENTS,
                "--paths.raw_text", str(raw), *options,
            ]  # fmt: skip
            run_for(60 * (mark - before), command)
            shutil.copy(output / "model-last.bin", found)
        before, options = mark, ["--resume-path", str(found), "--epoch-resume", "1"]


def run_for(seconds: float, command: List[str]) -> None:
    """Interrupt a command after some time: `spacy pretrain` then saves what it has."""
    # A job in the background ignores SIGINT, and so would what it starts.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, preexec_fn=heed)
    try:
        if process.wait(seconds):
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()


def paragraphs(text: str) -> Iterator[str]:
    for file in find_texts(text):
        document: Any
        for document in read_documents(file):
            yield from document


if __name__ == "__main__":
    typer.run(main)
