# From a fresh clone `make demo` and `make test` need Python 3.11+ and make,
# nothing else: each creates .venv, installs what it needs there, and runs.
#
#   make PYTHON=/path/to/python3.12 test     chooses the interpreter
#   make PYTEST_ARGS="-k ridge" test         passes arguments to pytest
#   make DEMO_ARGS="--data mnist --data-dir DIR" demo

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Threads of one pytest worker: WORKERS processes share the machine.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types docs clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' Makefile | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

# Numba stamps compiled code by the file of the outermost function alone: code made
# before the newest source of the backend is dropped.
FRESH = newest=$$(ls -t src/randkern/backend/*.py | head -n 1); \
	find src -name '*.nb[ic]' ! -newer "$$newest" -delete

demo: $(VENV)/demo.stamp ## compare kernels on scikit-learn's digits: a table and a figure
	@$(FRESH)
	$(BIN)/randkern compare $(DEMO_ARGS)

test: $(VENV)/test.stamp ## every test and every docstring example
	@$(FRESH)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/dev.stamp ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/dev.stamp ## mypy over the package
	$(BIN)/mypy

docs: $(VENV)/docs.stamp ## the documentation, warnings as errors, into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build docs/_build docs/generated docs/auto_examples randkern-compare
	rm -rf docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/randkern.egg-info

# The first interpreter that runs, is new enough, and can make an environment.
# (A name on the PATH is not enough: version managers leave shims that fail.)
$(BIN)/python:
	@for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.14 python); do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	        echo "creating $(VENV) with $$candidate ($$("$$candidate" --version))"; \
	        exec "$$candidate" -m venv $(VENV); \
	    fi; \
	    echo "$$candidate: $$("$$candidate" -c 'import sys; print(sys.version.split()[0], end=""); import venv, ensurepip' 2>&1 | tail -n 1)" >&2; \
	done; \
	echo "randkern needs Python 3.11 or newer with the venv and ensurepip modules (on Debian and Ubuntu: apt install python3-venv)." >&2; \
	echo "None of the interpreters above will do. Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	exit 1

# One stamp a set of extras: a second run installs nothing unless the
# requirements changed. (Byte code is made for the modules that are imported,
# not for all that were installed: that halves the time.)
$(VENV)/demo.stamp: EXTRAS := cli,plot
$(VENV)/test.stamp: EXTRAS := test
$(VENV)/dev.stamp: EXTRAS := dev
$(VENV)/docs.stamp: EXTRAS := docs
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	@echo "installing randkern[$(EXTRAS)] into $(VENV)"
	@$(PIP) install --quiet --no-compile --editable '.[$(EXTRAS)]'
	@touch $@
