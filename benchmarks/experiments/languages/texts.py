"""What an hour of one core makes of a text, for each of the languages.

    python texts.py hu --data ../../../../shared/data/languages --work ../work

Writes WORK/languages/hu: floret vectors, a tok2vec by `spacy pretrain`, and biLMs by
`spacy elmo pretrain` with the configs that `spacy elmo init` makes. What is there is
not made again; a biLM goes on from its checkpoint.
"""

import sys
from pathlib import Path
from typing import Annotated, List

import typer

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cost"), str(HERE.parents[1])]

from alternatives import RULES, make_tok2vecs, make_vectors  # noqa: E402
from harness import run_python  # noqa: E402

from spacy_elmo.recipe.configs import (  # noqa: E402
    PRETRAINING,
    pretrain_config,
    shipped_config,
)
from spacy_elmo.recipe.pace import measure_pace, set_length  # noqa: E402
from spacy_elmo.recipe.raw_text import HELDOUT, split_text  # noqa: E402
from spacy_elmo.text.files import TEXT  # noqa: E402


def main(
    code: Annotated[str, typer.Argument(help="A folder of --data")],
    data: Annotated[Path, typer.Option(help="One folder per language")],
    work: Path = HERE.parent / "work",
    minutes: Annotated[List[float], typer.Option(help="Of a biLM")] = [10, 60, 240],  # noqa: B006
    others: Annotated[float, typer.Option(help="Minutes of spacy pretrain")] = 60,
) -> None:
    texts = list((data / code).glob("text.txt*"))
    if len(texts) != 1:
        raise SystemExit(f"{data / code}: one text.txt or text.txt.xz should be there.")
    folder = work / "languages" / code
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    make_bilms(code, texts[0], folder, minutes)
    plain = str(folder / "corpus" / TEXT)
    if not (folder / "vectors").is_dir():
        make_vectors(plain, folder, code)
    if others:
        make_tok2vecs(plain, [others], folder, code)


def make_bilms(code: str, text: Path, folder: Path, minutes: List[float]) -> None:
    """bilm_10, bilm_60 ...: a run each, as its rate falls to zero at its end."""
    configs = {m: folder / f"bilm_{m:g}.cfg" for m in minutes}
    if not all(path.is_file() for path in configs.values()):
        survey = split_text(str(text), folder / "corpus")
        nlp = {"lang": code, "tokenizer": RULES}
        shared = pretrain_config(shipped_config(PRETRAINING), nlp, False, survey)
        for m, path in configs.items():
            if path.is_file():
                continue
            config = shared.copy()  # set_length makes what is too large smaller
            pace = measure_pace(config, survey, folder / "corpus", m / 60)
            set_length(config, survey, pace, m / 60)
            for part, name in (("train", TEXT), ("dev", HELDOUT)):
                config["paths"][part] = str(folder / "corpus" / name)
            config.to_disk(path)
    for path in configs.values():
        bilm, done = path.with_suffix(""), path.with_suffix(".done")
        if not done.is_file():  # with keep_best, weights are there before the end
            run_python("-m", "spacy", "elmo", "pretrain", path, bilm)
            done.touch()


if __name__ == "__main__":
    typer.run(main)
