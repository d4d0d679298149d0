#!/bin/sh
# The runs that made the bundled model, from text to bundle:
#
#   sh scripts/pretrain_en_elmo_sm.sh lm en_elmo_sm_runs
#
# The folder lm holds the texts of the model card, and heldout.txt and heldout_web.txt.
# Six stages: a first model; the same at a constant rate; the text three times at
# twice the batch, and the mean of the weights over the last 29 %; from there 1.2
# times more, at a rate that falls to zero; then six epochs of a mix with newer texts;
# and another of it, in smaller batches. Each resumes where it was stopped. The softmax
# of the first had biases of zero at its start, as in commit 8b8e422. The first
# four took 9.6 hours of one or two cores of a CPU with AMX, the fifth 8 minutes of an H100, the
# sixth 1.9 hours of one or two cores of a CPU without AMX.
set -e
LM=$1 RUNS=$2
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1

FIRST=""
for name in carpentries gov_web masc openstax science_plos senate_press_releases \
    standardebooks tech_docs usgov_history; do
    FIRST="$FIRST\"$LM/$name.txt.xz\","
done

stage() {
    folder=$1
    shift
    python -m spacy elmo pretrain configs/pretrain_small.cfg "$RUNS/$folder" \
        --paths.train "[${FIRST%,}]" --paths.dev "$LM/heldout.txt" \
        --training.compile true "$@"
}

stage 1 --training.max_tokens 20000000 --training.optimizer.learn_rate 0.002
stage 2 --init-from "$RUNS/1" --training.max_tokens 6451200 --training.seed 1 \
    --training.optimizer.learn_rate 0.0012 --training.optimizer.warmup_steps 300 \
    --training.optimizer.decay none
stage 3 --init-from "$RUNS/2" --training.max_tokens 124723200 --training.seed 2 \
    --training.rows 256 --training.optimizer.learn_rate 0.0015 \
    --training.optimizer.warmup_steps 300 --training.optimizer.decay none \
    --training.average_share 0.286
stage 4 --init-from "$RUNS/3" --training.max_tokens 49152000 --training.seed 3 \
    --training.rows 256 --training.optimizer.learn_rate 0.0012 \
    --training.optimizer.warmup_steps 100
mixed() {
    folder=$1
    shift
    python -m spacy elmo pretrain scripts/en_elmo_sm.cfg "$RUNS/$folder" \
        --paths.train "$LM/*.txt.xz" \
        --paths.dev "[\"$LM/heldout.txt\", \"$LM/heldout_web.txt\"]" "$@"
}

mixed 5 --init-from "$RUNS/4"
mixed 6 --init-from "$RUNS/5" --training.max_tokens 50331648 --training.seed 6 \
    --training.rows 256 --training.softmax.n_samples 2048 \
    --training.optimizer.learn_rate 0.001 --training.optimizer.warmup_steps 200 \
    --training.optimizer.decay_share 1.0
python scripts/bundle.py model "$RUNS/6" "$RUNS/en_elmo_sm" "$LM/heldout.txt" \
    "$LM/heldout_web.txt" --version 0.2.1 --earlier "$RUNS/1" --earlier "$RUNS/2" \
    --earlier "$RUNS/3" --earlier "$RUNS/4" --earlier "$RUNS/5" --mean-with "$RUNS/5"
