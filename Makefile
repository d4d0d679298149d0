# make train: a pipeline on top of ELMo, from the sample corpus, beside one without
# make test:  lint, types and tests
# Both need nothing but Python >= 3.10, and keep to .venv.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := rm -rf build && $(BIN)/python -m pip install -c constraints.txt
# For scripts/quickstart.py, for instance ARGS="--training.max_steps 50"
ARGS ?=

.PHONY: train test clean

train: $(BIN)/python
	$(INSTALL) .
	$(BIN)/python scripts/quickstart.py $(ARGS)

# Each check runs, also where one before it failed.
test: $(BIN)/python
	$(INSTALL) ".[test,lint,experiments,zstd]"
	@status=0; set -x; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/mypy || status=1; \
	$(BIN)/python -W error -c "import spacy_elmo" || status=1; \
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile \
		|| status=1; \
	{ set +x; } 2>/dev/null; exit $$status

clean:
	rm -rf .venv build dist *.egg-info corpus training .mypy_cache .pytest_cache \
		.ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 10) or sys.exit('Python 3.10 or newer is needed: make PYTHON=python3.12')"
	$(PYTHON) -m venv .venv
