#!/bin/sh
# The run that made en_elmo_md, from en_elmo_sm and text to bundle; 130 seconds of an
# H200, or days of a CPU:
#
#   sh scripts/pretrain_en_elmo_md.sh lm en_elmo_md_runs
#
# The folder lm holds the texts of the model card, and heldout.txt and heldout_web.txt.
set -e
LM=$1 RUNS=$2
# Called again, it goes on where it was stopped.
[ -d "$RUNS/wide" ] ||
    python scripts/widen.py en_elmo_sm "$RUNS/wide" --dim 1408 --projection-dim 256
python -m spacy elmo pretrain scripts/en_elmo_md.cfg "$RUNS/1" \
    --init-from "$RUNS/wide" --vocabulary.path "$RUNS/wide/vocab.txt" \
    --paths.train "$LM/*.txt.xz" \
    --paths.dev "[\"$LM/heldout.txt\", \"$LM/heldout_web.txt\"]"
python scripts/bundle.py model "$RUNS/1" "$RUNS/en_elmo_md" "$LM/heldout.txt" \
    "$LM/heldout_web.txt" --version 0.1.0
