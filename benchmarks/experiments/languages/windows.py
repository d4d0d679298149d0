"""Words that the window of characters cuts, and what a longer window costs.

    python windows.py --data ../../../../shared/data/languages --output .

By language. A word is what stands between blanks in the text; of the window, two
characters mark where a word begins and ends. The costs are those of layer 0 of distinct
words, of the small biLM with random weights, beside a window of 50.
"""

import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from harness import machine, make_parser, ratio, save, table, take_turns, timed  # noqa: E402
from inputs import randomize  # noqa: E402
from thinc.api import Config  # noqa: E402

from spacy_elmo.bilm import BiLM, Options  # noqa: E402
from spacy_elmo.recipe.configs import shipped_config  # noqa: E402
from spacy_elmo.recipe.raw_text import HELDOUT, split_text  # noqa: E402
from spacy_elmo.text.files import TEXT  # noqa: E402

WINDOWS = (50, 75, 100)
N_WORDS = 4000


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="One folder per language"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = {
        path.parent.name: measure(path)
        for path in sorted(args.data.glob("*/text.txt*"))
    }
    header = [
        "", "words", "bytes per character", "bytes per word",
        *(f"cut by {window}" for window in WINDOWS),
        *(f"time of {window}" for window in WINDOWS[1:]),
    ]  # fmt: skip
    rows = [
        [
            lang, f"{f['words']:,}", f"{f['bytes'] / f['characters']:.2f}",
            f"{f['bytes'] / f['words']:.1f}", *(f"{x:.4%}" for x in f["cut"].values()),
            *(f"{x:.2f}" for x in f["time"].values()),
        ]
        for lang, f in found.items()
    ]  # fmt: skip
    text = f"{__doc__}\n{table(header, rows)}\nMachine: {machine(args.threads)}.\n"
    save(
        "windows",
        {"machine": machine(args.threads), "languages": found},
        text,
        args.output,
    )


def measure(path: Path) -> Dict[str, Any]:
    """What a text has, and what its distinct words cost."""
    with tempfile.TemporaryDirectory() as folder:
        survey = split_text(str(path), Path(folder))
        texts = [
            (Path(folder) / name).read_text(encoding="utf8").split()
            for name in (TEXT, HELDOUT)
        ]
    words = sorted(set(texts[1]))
    random.Random(0).shuffle(words)
    return {
        "words": sum(map(len, texts)),
        "characters": sum(len(word) for text in texts for word in text),
        "bytes": sum(n_bytes * n for n_bytes, n in survey.lengths.items()),
        "cut": {window: survey.share_cut(window) for window in WINDOWS},
        "time": costs(words[:N_WORDS]),
    }


def costs(words: List[str]) -> Dict[int, float]:
    """The time of longer windows beside that of the first."""
    options = dict(Config().from_disk(shipped_config("pretrain_small.cfg"))["model"])
    arms = {}
    for window in WINDOWS:
        char_cnn = {**options["char_cnn"], "max_characters_per_token": window}
        bilm = BiLM(Options.from_dict({**options, "char_cnn": char_cnn}, "windows"))
        randomize(bilm)
        arms[str(window)] = timed(partial(bilm.encode_words, words))
    seconds = take_turns(arms, turns=21)
    first = seconds[str(WINDOWS[0])]
    return {w: ratio(seconds[str(w)], first) for w in WINDOWS[1:]}


if __name__ == "__main__":
    main()
