"""Tags, heads and names where words are noisy, by pipelines that have seen no noise.

    python noise.py dev.spacy --pipeline spaCy=A --pipeline ELMo=B --output .
    python noise.py dev.spacy --pipeline ELMo=TAGGER --pipeline ELMo=PARSER --output .

Of so many words of letters alone in a hundred, one character is wrong: typed wrongly
(left out, doubled, changed with its neighbor, or another letter of the text), or read
wrongly by OCR. Numbers and marks stay, and some errors change nothing: at 20 %, 15 to
17 % of all words are another. The choice of words and errors is that of the seed, the
same for all pipelines. LAS is spaCy's: without punctuation, with subtypes. Pipelines of
other names that OUTPUT has of the same seed stay there.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional

import spacy
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.vocab import Vocab

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from harness import make_parser, save, table  # noqa: E402

Scores = Dict[str, Dict[str, Dict[str, float]]]

SHARES = (0.0, 0.05, 0.1, 0.2)
SCORES = {"tag_acc": "tags", "pos_acc": "UPOS", "dep_las": "LAS", "ents_f": "names, F"}
# What is taken for what, in print of the nineteenth century and in plain scans.
OCR = {
    "rn": "m", "m": "rn", "cl": "d", "d": "cl", "li": "h", "h": "b", "b": "h",
    "e": "c", "c": "e", "l": "1", "i": "l", "I": "l", "o": "0", "O": "0", "S": "5",
    "s": "f", "f": "s", "u": "n", "n": "u", "a": "o", "t": "f", "v": "y", "g": "q",
    "и": "н", "н": "п", "п": "н", "е": "с", "с": "е", "ш": "щ", "й": "и", "л": "д",
    "б": "6", "з": "3", "о": "0", "á": "a", "é": "e", "ö": "o", "ő": "ö", "ü": "u",
    "ű": "ü", "ó": "o", "ã": "a", "ç": "c", "è": "e", "ß": "B", "ä": "a",
}  # fmt: skip

Noise = Callable[[str, random.Random, List[str]], str]


def typed_wrongly(word: str, rng: random.Random, letters: List[str]) -> str:
    i = rng.randrange(len(word))
    return rng.choice(
        [
            word[:i] + word[i + 1 :] or word,
            word[:i] + word[i] + word[i:],
            word[:i] + word[i : i + 2][::-1] + word[i + 2 :],
            word[:i] + rng.choice(letters) + word[i + 1 :],
        ]
    )


def read_wrongly(word: str, rng: random.Random, letters: List[str]) -> str:
    """Where no confusion is known, a letter is lost in a speck."""
    places = [
        (i, seen) for i in range(len(word)) for seen in OCR if word.startswith(seen, i)
    ]
    if not places:
        return typed_wrongly(word, rng, ["."])
    i, seen = rng.choice(places)
    return word[:i] + OCR[seen] + word[i + len(seen) :]


KINDS: Dict[str, Noise] = {"typing": typed_wrongly, "OCR": read_wrongly}


def add_noise(docs: Iterable[Doc], noise: Noise, share: float, seed: int) -> List[Doc]:
    """The Docs with other words and the same annotation."""
    docs = list(docs)
    letters = sorted({c for doc in docs for c in doc.text if c.isalpha()})
    rng = random.Random(seed)
    found = []
    for doc in docs:
        words = [
            noise(t.text, rng, letters)
            if t.text.isalpha() and rng.random() < share
            else t.text
            for t in doc
        ]
        has_heads = doc.has_annotation("DEP")
        noisy = Doc(
            doc.vocab, words=words, spaces=[bool(t.whitespace_) for t in doc],
            tags=[t.tag_ for t in doc], pos=[t.pos_ for t in doc],
            heads=[t.head.i for t in doc] if has_heads else None,
            deps=[t.dep_ for t in doc] if has_heads else None,
            ents=[bio(t) for t in doc] if doc.has_annotation("ENT_IOB") else None,
        )  # fmt: skip
        found.append(noisy)
    return found


def others(folder: Optional[Path], name: str, seed: int, made: List[str]) -> Scores:
    """Scores of an earlier run with the same seed, of pipelines not made anew."""
    path = folder / f"{name}.json" if folder else None
    if path is None or not path.is_file():
        return {}
    earlier = json.loads(path.read_text())
    if earlier["seed"] != seed:
        return {}
    return {name: of for name, of in earlier["scores"].items() if name not in made}


def bio(token: Any) -> str:
    return f"{token.ent_iob_}-{token.ent_type_}" if token.ent_type_ else "O"


def main() -> None:
    parser = make_parser(__doc__, threads=False)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--pipeline", action="append", required=True, help="NAME=PATH")
    parser.add_argument("--name", default="noise", help="Of the results")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="So many Docs and no more")
    args = parser.parse_args()
    docs = list(DocBin().from_disk(args.dev).get_docs(Vocab()))[: args.limit]
    pipelines = [named.split("=", 1) for named in args.pipeline]
    found = others(args.output, args.name, args.seed, [name for name, _ in pipelines])
    for name, path in pipelines:
        nlp = spacy.load(path)
        for kind, noise in KINDS.items():
            for share in SHARES if kind == "typing" else SHARES[1:]:
                key = f"{kind} {share:.0%}" if share else "none"
                noisy = add_noise(docs, noise, share, args.seed)
                examples = [
                    Example(Doc(nlp.vocab, words=[t.text for t in d]), d) for d in noisy
                ]
                scores = nlp.evaluate(examples)
                mine = {k: scores[k] for k in SCORES if scores.get(k) is not None}
                found.setdefault(name, {}).setdefault(key, {}).update(mine)
                print(name, key, mine, flush=True)
    rows = []
    for name, by_noise in found.items():
        for key in next(iter(by_noise.values())):
            values = [100 * by_noise[noise][key] for noise in by_noise]
            rows.append([f"{name}, {SCORES[key]}", *values])
    header = ["noise", *next(iter(found.values()))]
    text = f"{__doc__}\n{table(header, rows, '.1f')}"
    save(args.name, {"seed": args.seed, "scores": found}, text, args.output)


if __name__ == "__main__":
    main()
