"""The constants that decide speed and memory, in prediction and in pretraining; none
changes a result by more than its rounding. Figures were measured on one core of a Xeon
with AVX-512 and AMX: the time with another value over the time with this one, for
en_elmo_sm and for the original size. Most are CPU times beside other work: expect 0.05
of noise. benchmarks/tuning.py measures those in its TRIALS, the others were changed by
hand; benchmarks/speed.py measures the whole.
"""

# -- Batches ---------------------------------------------------------------------
# Tokens in the LSTMs at a time: enough rows that a step's products do not wait for
# the weights. A few percent faster than 4,096 on long texts; the layers of a batch
# take 100 MB at the original size.
MAX_BATCH_TOKENS = 8192
# Distinct words in the token encoder at a time: bounds its memory to some 100 MB.
MAX_BATCH_WORDS = 4096

# -- Token encoder ---------------------------------------------------------------
# Words are convolved in groups of similar length, which end at these lengths in
# characters, word marks included: no window of padding but the one they all share.
# All in one group: 1.2 and 1.1; half or twice as many groups: 1.0.
WORD_LENGTHS = (3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 26, 34)
# Words of a group at a time: bounds the memory of the responses. Any other: 1.0.
BLOCK_WORDS = 256
# In training, words are padded to a multiple of this: oneDNN compiles a kernel for
# each new shape, which takes longer than the product itself. Without: 1.1 and 1.06;
# half as many: 1.0, twice as many: 1.0 and 1.2.
WORD_MULTIPLE = 256
# For the same reason, each product of the convolutions has this many windows, whatever
# the words. Half as many: 1.0, twice as many: 1.0 and 1.08.
WINDOW_MULTIPLE = 2048

# -- Products in float32 ---------------------------------------------------------
# On AMD's processors with AVX-512 oneDNN multiplies (see `has_fast_onednn` in
# kernels.py): on one core of an EPYC, a step's product takes MKL 2.5 times as long, of
# another one 1.0. On one with AVX2 alone the biLM takes oneDNN 1.1 times as long. But
# one row times a weight of at most this many numbers is MKL's: oneDNN takes 1.2 to 2.4
# times as long for it, and 0.6 to 0.8 times above that.
SMALL_WEIGHT = 1 << 20

# -- LSTM ------------------------------------------------------------------------
# Steps of up to this many tokens share one product of their inputs: with few rows,
# reading the weights takes longer than the product. Where none share: 1.05 and 1.36 on
# a treebank, 1.15 and 1.33 for one sentence; half or twice as many tokens: 1.0.
CHUNK_TOKENS = 384
# If inputs repeat this often on average, their products are computed once: 1.10x on a
# treebank at the original size, nothing at the small one. They take 16 bytes an input
# and unit of the cell: at most 270 MB for a batch at the original size, and half of
# that for running text.
LEAST_READINGS = 2
# If a row of the kernel has a multiple of ALIASED numbers, it is padded by 16.
# Else all elements of a column share a few sets of the processor's cache: a product of
# 32 to 128 rows takes 1.2 to 1.3 times as long at the original size, and the biLM over
# a treebank 1.2 times at the small one.
ALIASED = 4096
KERNEL_PADDING = 16
# In training, kernels are copied and their rows padded: at a power of two, products
# take twice as long.
TRAINING_PADDING = 64
# The number of rows is made a multiple of this: a GPU has no fast product of an odd
# number. On a CPU, none, half or twice this: no trend. In prediction in bfloat16, too,
# if there are more rows than this: oneDNN compiles and keeps a kernel for each number,
# hundreds of MB of them. Padding fewer makes one sentence take 1.5 times as long.
ROW_MULTIPLE = 16

# -- Above the listeners ---------------------------------------------------------
# Products of fewer multiplications than this take one thread, as spaCy's own do. On two
# idle cores of an EPYC, training takes 1.1 to 1.2 times as long if all are divided, and
# prediction 1.1 to 1.25 times if none are. Where another process has one of the cores,
# threads wait for each other: if all are divided, training takes more than 5 times.
THREADED_PRODUCT = 1 << 28

# -- Pretraining -----------------------------------------------------------------
# Documents that a process tokenizes at a time.
BATCH_DOCUMENTS = 64
# A tokenizer keeps all strings that it has seen: with more than these, it is rebuilt.
# In `nlp.memory_zone()` it would forget them itself, and take three times as long.
MAX_STRINGS = 200_000
# Tokens and words that are written to the cache of a text at a time: bounds the memory.
CACHED_TOKENS = 1 << 22
CACHED_WORDS = 1 << 16
# Compiling takes about a minute: in a run of fewer updates it does not pay.
MIN_STEPS_TO_COMPILE = 1000
# Tokens whose logits are in memory at a time on a CPU. With 2,048 negatives, compiled,
# half as many take 1.26 times as long in bfloat16 and 1.11 times in float32; twice as
# many are no faster. With a large vocabulary fewer tokens bound the memory (2**25
# floats are 128 MB). A GPU takes four times that, in as few chunks as it can.
LOSS_TOKENS = 512
MAX_LOGITS = 1 << 25
MAX_LOGITS_OF_GPU = 1 << 27
# Windows that are cut out of the text at a time: bounds the memory.
BLOCK_WINDOWS = 64
# In evaluation, texts are read by length. Tokens that are sorted at a time: bounds the
# memory.
SORTED_TOKENS = 1 << 18
