"""Recipes of pretraining at the same cost: bits per character on held-out texts.

    python benchmarks/recipes.py --text "lm/*.txt.xz" --heldout lm/heldout.txt \
        lm/heldout_web.txt --work FOLDER --output benchmarks

Each recipe is pretrain_small.cfg with some settings changed. An hour of one core is
some 14 million tokens of that config; a recipe whose step costs more reads fewer
(COSTS: process time of a step in bfloat16 on one core of a Xeon with AMX, the median
of three, in turn). A recipe that has a result is not run again.
"""

import shutil
from pathlib import Path
from typing import Any, Dict, List

import srsly
from harness import ROOT, machine, make_parser, run_python, save, table

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 256], [7, 256]]


def lstm(cells: int, projection: int) -> Dict[str, Any]:
    return {"model.lstm.dim": cells, "model.lstm.projection_dim": projection}


CHANGES: Dict[str, Dict[str, Any]] = {
    "1024 cells, projection 128": {},
    "1024 cells, projection 256": lstm(1024, 256),
    "2048 cells, projection 128": lstm(2048, 128),
    "1280 cells, projection 256, 1024 filters": {
        **lstm(1280, 256), "model.char_cnn.filters": FILTERS
    },
    "1024 filters": {"model.char_cnn.filters": FILTERS},
    "3 layers": {"model.lstm.n_layers": 3},
    "state carried": {"training.state": "carried"},
    "Adagrad, as the paper": {
        "training.optimizer.name": "adagrad",
        "training.optimizer.learn_rate": 0.2,
        "training.optimizer.warmup_steps": 0,
        "training.optimizer.decay": "none",
        "training.optimizer.weight_decay": 0.0,
        "training.grad_clip": 10.0,
    },
    "half of the text in lower case": {"corpus.lower_case": 0.5},
}  # fmt: skip
COSTS = {
    "1024 cells, projection 256": 1.32,
    "2048 cells, projection 128": 1.61,
    "1280 cells, projection 256, 1024 filters": 1.79,
    "1024 filters": 1.16,
    "3 layers": 1.18,
}


def main() -> None:
    parser = make_parser(__doc__, threads=False)
    parser.add_argument("--text", required=True)
    parser.add_argument("--heldout", nargs="+", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--config", default=ROOT / "configs" / "pretrain_small.cfg")
    parser.add_argument("--tokens", type=int, default=14_000_000)
    parser.add_argument("--recipes", nargs="+", choices=CHANGES, default=list(CHANGES))
    args = parser.parse_args()
    found = {name: pretrain(name, args) for name in args.recipes}
    results = {"machine": machine(), "recipes": found}
    save("recipes", results, render(results), args.output)


def pretrain(name: str, args: Any) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The tokens that were read, and the bits per character
    on each held-out file and on all of them.
    """
    folder = args.work / name.replace(" ", "_").replace(",", "")
    result = folder / "result.json"
    asked = [args.text, args.heldout, str(args.config), args.tokens]
    if result.is_file() and srsly.read_json(result).get("asked") != asked:
        raise SystemExit(f"{result} is of another text or length. Use another --work.")
    if not result.is_file():
        changes = CHANGES[name]
        first = args.work / "1024_cells_projection_128" / "corpus"
        if first.is_dir() and not any(key.startswith("corpus.") for key in changes):
            shutil.copytree(first, folder / "corpus", dirs_exist_ok=True)
        tokens = int(args.tokens / COSTS.get(name, 1.0))
        settings: List[Any] = ["--training.max_tokens", tokens]
        for key, value in changes.items():
            settings += [f"--{key}", value]
        run_python(
            "-m", "spacy", "elmo", "pretrain", args.config, folder,
            "--paths.train", args.text, "--paths.dev", srsly.json_dumps(args.heldout),
            *settings,
        )  # fmt: skip
        *_, last = srsly.read_jsonl(folder / "log.jsonl")
        files = last.get("files") or {Path(args.heldout[0]).name: last}
        bits = {file: found["bits_per_character"] for file, found in files.items()}
        bits["all"] = last["bits_per_character"]
        found = {"asked": asked, "tokens": last["tokens"], "bits": bits}
        srsly.write_json(result, found)
    return dict(srsly.read_json(result))


def render(results: Dict[str, Any]) -> str:
    found = results["recipes"]
    files = list(next(iter(found.values()))["bits"])
    rows = [
        [name, f"{r['tokens'] / 1e6:.1f}", *(r["bits"][file] for file in files)]
        for name, r in found.items()
    ]
    header = ["recipe", "million tokens", *files]
    return "\n".join(
        [
            "Bits per character on held-out texts, after pretraining at the same "
            "cost.\n",
            table(header, rows, ".3f"),
            f"Machine: {results['machine']}.\n",
        ]
    )


if __name__ == "__main__":
    main()
