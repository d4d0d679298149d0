"""What the constants of spacy_elmo/bilm/tuning.py are worth: the time with another
value, over the time with their own. The original geometry has random weights.

    python benchmarks/tuning.py --text ewt/dev.tsv --output benchmarks
"""

import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Callable, Dict, List

import torch
from harness import machine, make_parser, ratio, save, table, take_turns, timed
from inputs import Sentences, random_bilm, read_sentences

from spacy_elmo.bilm import BiLM, tuning
from spacy_elmo.bilm.characters import number_words, words_to_ids
from spacy_elmo.weights import resolve

HUGE = 1 << 30
Work = Callable[[], Any]
ENCODER, LSTMS = ("words", "words, training"), ("sentences", "one sentence")
# What is timed, and other values: half, double, and one that turns the constant off.
TRIALS: Dict[str, Any] = {
    "WORD_LENGTHS": (ENCODER, tuning.WORD_LENGTHS[1::2], range(3, 36), (50,)),
    "BLOCK_WORDS": (ENCODER, 128, 512, HUGE),
    "WORD_MULTIPLE": (ENCODER[1:], 128, 512, 1),
    "WINDOW_MULTIPLE": (ENCODER[1:], 1024, 4096),
    "CHUNK_TOKENS": (LSTMS, 192, 768, 1),
    "LEAST_READINGS": (LSTMS[:1], 1, 4, HUGE),
    "TRAINING_PADDING": (("LSTMs, training",), 32, 128, 0),
    "ROW_MULTIPLE": (("LSTMs, training",), 8, 32, 1),
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--text", type=Path, help="A treebank's .tsv")
    parser.add_argument("--geometries", nargs="+", default=["en_elmo_sm", "original"])
    parser.add_argument("--constants", nargs="+", default=list(TRIALS))
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    sentences = read_sentences(args.text, args.words)
    about = f"{machine(args.threads)}, {args.words:,} words, {args.turns} turns"
    results = {name: measure(name, sentences, args) for name in args.geometries}
    text, header = f"Measured on {about}.\n", ["", "time of", "half", "double", "off"]
    for name, rows in results.items():
        text += f"\n## {name}\n\n{table(header, rows, '.2f')}"
    save("tuning", {"machine": about, **results}, text, args.output)


def measure(geometry: str, sentences: Sentences, args: Any) -> List[List[Any]]:
    """A row for each constant and what is timed: the ratios of its other values."""
    trained = geometry == "en_elmo_sm"
    bilm = BiLM.from_path(resolve(geometry)) if trained else random_bilm(geometry)
    works, rows = works_of(bilm, sentences), []
    for constant in args.constants:
        names, *others = TRIALS[constant]
        own = getattr(tuning, constant)
        for name in filter(works.get, names):
            # The first of each turn finds cold caches: it is not counted.
            arms = {
                str(i): timed(partial(run_with, constant, value, works[name]))
                for i, value in enumerate([own, own, *others])
            }
            _, mine, *theirs = take_turns(arms, args.turns).values()
            rows.append([constant, name, *(ratio(other, mine) for other in theirs)])
    return rows


def run_with(constant: str, value: Any, work: Work) -> None:
    """Run something with a value of a constant, wherever that is imported."""
    own, modules = getattr(tuning, constant), dict(sys.modules)
    names = [name for name in modules if name.startswith("spacy_elmo.")]
    users = [modules[name] for name in names if hasattr(modules[name], constant)]
    for user in users:
        setattr(user, constant, value)
    work()
    for user in users:
        setattr(user, constant, own)


def works_of(bilm: BiLM, sentences: Sentences) -> Dict[str, Work]:
    words, ids = number_words(sentences)
    width = bilm.options.char_cnn.max_characters_per_token
    characters = torch.from_numpy(words_to_ids(words, width))
    table = bilm.encode_words(words)
    sizes = [128] * max(1, sum(map(len, sentences)) // 512)
    x = torch.randn(sum(sizes), table.shape[1])
    turn = count()

    def encode() -> Any:  # each batch has another number of words
        return bilm.encoder(characters[next(turn) % 100 :])

    def read(n: int) -> None:
        bilm.encode_ids(table, ids[:n])

    def train(run: Work) -> None:
        bilm.requires_grad_(True)
        with torch.autocast("cpu", torch.bfloat16):
            out = run()
        out.float().sum().backward()
        bilm.requires_grad_(False)

    return {
        "words": encode,
        "words, training": lambda: train(encode),
        "sentences": lambda: read(HUGE),
        "one sentence": lambda: read(1),
        "LSTMs, training": lambda: train(lambda: bilm.run_direction(0, x, sizes)[0][1]),
    }


if __name__ == "__main__":
    main()
