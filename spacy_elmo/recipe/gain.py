"""Print what ELMo has gained: the dev scores of two trained pipelines, side by side.

python -m spacy_elmo.recipe.gain training/baseline/model-best training/elmo/model-best
"""

import sys
from pathlib import Path
from typing import Any, Dict, List

import srsly
from wasabi import msg

# What the components are judged by.
SCORES = {
    "tag_acc": "Tags",
    "pos_acc": "Parts of speech",
    "morph_acc": "Morphology",
    "dep_uas": "Heads (UAS)",
    "dep_las": "Labeled heads (LAS)",
    "ents_f": "Entities (F)",
}


def compare(without: Dict[str, Any], with_elmo: Dict[str, Any]) -> List[List[str]]:
    """A row for each score that both have: its name, both values in percent, and the
    share of the errors that is gone.
    """
    rows = []
    for key, name in SCORES.items():
        before, after = without.get(key), with_elmo.get(key)
        if before is None or after is None:
            continue
        gone = (after - before) / (1 - before) if before < 1 else 0.0
        rows.append([name, f"{before:.2%}", f"{after:.2%}", f"{gone:.0%}"])
    return rows


def main(without: Path, with_elmo: Path) -> None:
    msg.divider("What ELMo gains")
    metas = (dict(srsly.read_json(p / "meta.json")) for p in (without, with_elmo))
    rows = compare(*(meta["performance"] for meta in metas))
    header = ["on the dev part", "without", "with ELMo", "errors removed"]
    msg.table(rows, header=header, divider=True, aligns=["l", "r", "r", "r"])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
