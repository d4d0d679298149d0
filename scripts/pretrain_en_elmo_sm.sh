#!/bin/sh
# The run that made the bundled model, from text to bundle:
#
#   sh scripts/pretrain_en_elmo_sm.sh "lm/*.txt.xz" lm/heldout.txt en_elmo_sm_runs
#
# Four stages: a first model; the same at a standing rate; the text three times at
# twice the batch, and the mean of the weights over the last 29 %; from there once more
# and a fifth, at a rate that falls to zero. Each goes on where it was stopped. One core
# of a CPU with AMX, 10 hours.
set -e
TEXT=$1 HELDOUT=$2 RUNS=$3
# Memory that one step frees is the next one's, and not the system's again.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1

stage() {
    folder=$1
    shift
    python -m spacy elmo pretrain configs/pretrain_small.cfg "$RUNS/$folder" \
        --paths.train "$TEXT" --paths.dev "$HELDOUT" --training.compile true "$@"
}

stage 1 --training.max_tokens 20000000
stage 2 --init-from "$RUNS/1" --training.max_tokens 6451200 --training.seed 1 \
    --training.optimizer.learn_rate 0.0012 --training.optimizer.warmup_steps 300 \
    --training.optimizer.decay none
stage 3 --init-from "$RUNS/2" --training.max_tokens 124723200 --training.seed 2 \
    --training.rows 256 --training.optimizer.learn_rate 0.0015 \
    --training.optimizer.warmup_steps 300 --training.optimizer.decay none \
    --training.average_share 0.286 --training.checkpoint_steps 320
stage 4 --init-from "$RUNS/3" --training.max_tokens 49152000 --training.seed 3 \
    --training.rows 256 --training.optimizer.learn_rate 0.0012 \
    --training.optimizer.warmup_steps 100
python scripts/bundle.py model "$RUNS/4" "$RUNS/en_elmo_sm" "$HELDOUT" \
    --earlier "$RUNS/1" --earlier "$RUNS/2" --earlier "$RUNS/3"
