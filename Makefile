# What there is to do here; needs make and Python 3.11 or later, nothing else. No root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-fast lint fuzz conformance chaos bench docs lock clean

demo: $(READY)  ## four sites, one killed, one cut off, and the audit
	@$(BIN)/anabranch demo

test: lint  ## everything that continuous integration runs
	$(BIN)/pytest -n 2 --dist worksteal
	$(BIN)/anabranch fuzz --runs 150 --seed 7 --workers 2 --json

test-fast: $(READY)  ## what to run while working: no type check, no slow test
	$(BIN)/ruff check
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: $(READY)  ## three thousand random runs, each compared with the ideal run
	@$(BIN)/anabranch fuzz --runs 3000 --seed 1

conformance: $(READY)  ## two hundred random queries: Arrow = Spark streaming = Spark batch
	ANABRANCH_CONFORMANCE=200 $(BIN)/pytest -n 2 --dist worksteal tests/conformance/test_spark.py

chaos: $(READY)  ## three queries on four live sites, 25 faults each, the output compared after every one
	ANABRANCH_CHAOS=25 $(BIN)/pytest tests/chaos

bench: $(READY)  ## the duplicate filter and the simulator, measured on this machine
	@$(BIN)/anabranch bench filter
	@$(BIN)/anabranch bench sim

docs: $(READY)  ## the pages that are generated
	$(BIN)/python -m anabranch.cli.reference > docs/reference/cli.md

# The pinned versions hold for every Python from 3.11 on and every platform.
lock: $(READY)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet --output-file requirements.lock

clean:  ## back to what was cloned
	rm -rf $(VENV) build dist out fuzz-failures chaos-failures .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

$(READY): requirements.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Anabranch needs Python 3.11 or later; this one is %d.%d. Name another with make PYTHON=python3.12" % v[:2])'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
