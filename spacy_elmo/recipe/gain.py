"""Print what ELMo has gained: the dev scores of two trained pipelines, side by side.

python -m spacy_elmo.recipe.gain training/baseline/model-best training/elmo/model-best
"""

import sys
from pathlib import Path

import srsly
from wasabi import msg

# The main scores of the components.
SCORES = {
    "tag_acc": "Tags",
    "pos_acc": "Parts of speech",
    "morph_acc": "Morphology",
    "dep_uas": "Heads (UAS)",
    "dep_las": "Labeled heads (LAS)",
    "ents_f": "Entities (F)",
}


def main(baseline: Path, elmo: Path) -> None:
    without, with_elmo = (
        srsly.read_json(path / "meta.json")["performance"] for path in (baseline, elmo)
    )
    rows = []
    for key, name in SCORES.items():
        before, after = without.get(key), with_elmo.get(key)
        if None not in (before, after) and min(before, after) < 1:  # else not annotated
            gone = "-"  # of no errors
            if before < 1:
                share = (after - before) / (1 - before)
                gone = f"{round(share, 2) + 0.0:.0%}"  # no "-0%"
            rows.append([name, f"{before:.2%}", f"{after:.2%}", gone])
    msg.divider("What ELMo gains")
    header = ["on the dev part", "without", "with ELMo", "errors removed"]
    msg.table(rows, header=header, divider=True, aligns=tuple("lrrr"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
