"""flair's character language models, trained for an hour on the text of a language,
under flair's own tagger: UPOS and names.

    python -m venv flair-env && flair-env/bin/pip install flair
    flair-env/bin/python flair_lm.py --data PATH --work ../work --output flair.json

Half an hour of processor time each for the forward and the backward model, on one
thread, as each has a process of its own that is ended then; the models are those of the
best evaluation, every few minutes. Half an hour is little text for the 1,024 cells and
100 rows of flair's `news-forward-fast`: 512 and 20 learn more in it. What has a result
is not made again. flair has no parser for these embeddings, and so no LAS.
"""

import argparse
import json
import lzma
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

CODES = ("de", "fr", "hu", "ko", "pt", "ru")
# Column of the tag
TASKS = {"tags": ("ud", 1, 3, "accuracy"), "names": ("ner", 0, 1, "micro avg")}
CHARACTERS_OF_SPLIT = 500_000
SEQUENCE = 250
CELLS = 512
ROWS = 20
EPOCHS = 100
# How a model's process ends: by itself, or when its time is over
ENDS = (0, -signal.SIGXCPU, -signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--codes", nargs="*", default=CODES)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--direction", help="Train one model, until ended")
    args = parser.parse_args()
    if args.direction:
        train_lm(args.work, args.direction)
        return
    found: Dict[str, float] = {}
    if args.output.is_file():
        found = json.loads(args.output.read_text())
    for code in args.codes:
        folder = args.work / "languages" / code / f"flair_{args.minutes:g}"
        write_corpus(args.data / code, folder)
        for direction in ("forward", "backward"):
            run_lm(folder, direction, int(30 * args.minutes))
        for task in TASKS:
            for seed in range(args.seeds):
                key = f"{task}_{code}/flair, {args.minutes:g}/all/{seed}"
                if key not in found:
                    score = train_tagger(args.data / code, folder, task, seed)
                    found[key] = score
                    args.output.write_text(json.dumps(found, indent=1) + "\n")
                    print(key, score, flush=True)


def write_corpus(data: Path, folder: Path) -> None:
    """The text in splits, as flair reads it, and its characters."""
    if (folder / "characters.json").is_file():
        return
    (folder / "text" / "train").mkdir(parents=True, exist_ok=True)
    heldout = (data / "heldout.txt").read_text(encoding="utf8")[:50_000]
    for name in ("valid.txt", "test.txt"):
        (folder / "text" / name).write_text(heldout, encoding="utf8")
    with lzma.open(data / "text.txt.xz", "rt", encoding="utf8") as file:
        text = file.read()
    for i in range(0, len(text), CHARACTERS_OF_SPLIT):
        split = folder / "text" / "train" / f"split_{i // CHARACTERS_OF_SPLIT:04}"
        split.write_text(text[i : i + CHARACTERS_OF_SPLIT], encoding="utf8")
    characters = json.dumps(sorted(set(text)))
    (folder / "characters.json").write_text(characters, encoding="utf8")


def run_lm(folder: Path, direction: str, seconds: int) -> None:
    done = folder / f"{direction}.done"
    if done.is_file():
        return
    command = [sys.executable, __file__, "--data", ".", "--output", "."]
    command += ["--work", str(folder), "--direction", direction]
    process = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
    )
    if process.returncode not in ENDS:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    if not (folder / direction / "best-lm.pt").is_file():
        raise SystemExit(f"{folder / direction}: no evaluation within {seconds} s")
    done.touch()


def train_lm(folder: Path, direction: str) -> None:
    from flair.data import Dictionary
    from flair.models import LanguageModel
    from flair.trainers.language_model_trainer import LanguageModelTrainer, TextCorpus

    is_forward = direction == "forward"
    dictionary = Dictionary()
    for character in json.loads((folder / "characters.json").read_text("utf8")):
        dictionary.add_item(character)
    corpus = TextCorpus(
        folder / "text",
        dictionary,
        is_forward,
        character_level=True,
        random_case_flip=False,
    )
    model = LanguageModel(dictionary, is_forward, hidden_size=CELLS, nlayers=1)
    LanguageModelTrainer(model, corpus).train(
        folder / direction,
        sequence_length=SEQUENCE,
        mini_batch_size=ROWS,
        max_epochs=1000,
    )


def train_tagger(data: Path, folder: Path, task: str, seed: int) -> float:
    """The dev score of the best epoch, by flair's SequenceTagger as it comes."""
    import flair
    from flair.data import Corpus
    from flair.datasets import FlairDatapointDataset
    from flair.embeddings import FlairEmbeddings, StackedEmbeddings
    from flair.models import SequenceTagger
    from flair.trainers import ModelTrainer

    flair.set_seed(seed)
    name, form, column, score = TASKS[task]
    parts = [
        FlairDatapointDataset(read(data / f"{name}_{part}.tsv.xz", form, column))
        for part in ("train", "dev")
    ]
    corpus: Any = Corpus(train=parts[0], dev=parts[1], test=parts[1])
    embeddings: List[Any] = [
        FlairEmbeddings(folder / direction / "best-lm.pt")
        for direction in ("forward", "backward")
    ]
    tagger = SequenceTagger(
        embeddings=StackedEmbeddings(embeddings),
        tag_dictionary=corpus.make_label_dictionary("tag", add_unk=False),
        tag_type="tag",
        tag_format="BIO",
    )
    output = folder / f"{task}-{seed}"
    ModelTrainer(tagger, corpus).train(
        output, learning_rate=0.1, mini_batch_size=32, max_epochs=EPOCHS,
        embeddings_storage_mode="cpu",
    )  # fmt: skip
    best = SequenceTagger.load(output / "best-model.pt")
    found = best.evaluate(parts[1], gold_label_type="tag")
    report = found.classification_report
    return float(report[score] if score == "accuracy" else report[score]["f1-score"])


def read(path: Path, form: int, column: int) -> List[Any]:
    """Sentences with one label per token, or per span."""
    from flair.data import Sentence

    with lzma.open(path, "rt", encoding="utf8") as file:
        blocks = file.read().split("\n\n")
    found = []
    for block in blocks:
        rows = [x.split("\t") for x in block.split("\n") if x and x[:2] != "# "]
        if not rows:
            continue
        sentence = Sentence([row[form] for row in rows])
        if column == 3:
            for token, row in zip(sentence, rows):
                token.add_label("tag", row[column])
        else:
            start = 0
            for i in range(1, len(rows) + 1):
                if i == len(rows) or not rows[i][column].startswith("I-"):
                    if rows[start][column] != "O":
                        sentence[start:i].add_label("tag", rows[start][column][2:])
                    start = i
        found.append(sentence)
    return found


if __name__ == "__main__":
    main()
