# From a fresh clone `make demo` and `make test` need Python 3.11+ and make,
# nothing else: each creates .venv, installs what it needs there, and runs.
#
#   make PYTHON=/path/to/python3.12 test     chooses the interpreter
#   make PYTEST_ARGS="-k ridge" test         passes arguments to pytest
#   make DEMO_ARGS="--data mnist --data-dir DIR" demo

VENV := .venv
BIN := $(VENV)/bin
# Environments of other versions, and of the wheel.
ENVS := .envs
PYTHON ?=
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Threads of one pytest worker: WORKERS processes share the machine. A worker takes whole
# modules, whose fixtures are then made once.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
WORK := -n $(WORKERS) --dist loadscope
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest

# The tests need PyTorch, but not the gigabytes of CUDA that PyPI's build brings. The
# version "+cpu" is on PyTorch's own index alone, which is asked where pip's usual ones do
# not have it. macOS has one build.
ifeq ($(shell uname -s),Darwin)
TORCH ?= torch==2.13.0
else
TORCH ?= torch==2.13.0+cpu
endif
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# Commands that tests start would compile scikit-learn each time, which takes four of
# their six seconds. (.gitignore has the files.)
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check test lint format types docs wheel dist minimum
.PHONY: nightly blas pythons random coverage records numbers rehearsal clean environments

help: ## this list
	@grep -E '^[a-z]+:.*## ' Makefile | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/demo.stamp ## compare kernels on scikit-learn's digits: a table and a figure
	$(BIN)/randkern compare $(DEMO_ARGS)

check: $(VENV)/test.stamp ## the fast tests
	$(PYTEST) $(WORK) -m "not slow and not nightly" --strict-skips $(PYTEST_ARGS)

test: $(VENV)/test.stamp ## every test but the nightly ones, and every docstring example
	$(PYTEST) $(WORK) -m "not nightly" --strict-skips $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp ## ruff: rules and formatting; codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

format: $(VENV)/dev.stamp ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/dev.stamp ## mypy over the package
	$(BIN)/mypy

docs: $(VENV)/docs.stamp ## the documentation, into docs/_build/html: warnings and bad links fail
	$(BIN)/python -m randkern_lab.render --check
	rm -rf docs/_build/html # and with it pages that are no more
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees \
	    docs docs/_build/html
	$(BIN)/python docs/check_pages.py docs/_build/html
	@echo "docs/_build/html/index.html"

wheel: | $(BIN)/python ## the wheel, without extras in an empty environment
	rm -rf build/lib $(ENVS)/wheel
	$(PIP) wheel --quiet --no-deps --wheel-dir $(ENVS)/wheel/dist .
	$(BIN)/python -m venv $(ENVS)/wheel
	$(ENVS)/wheel/bin/python -m pip install --quiet --no-compile $(ENVS)/wheel/dist/*.whl
	$(ENVS)/wheel/bin/python -I .ci/check_wheel.py

# The wheel is built from the source distribution, so this one is complete.
dist: | $(BIN)/python ## what a release uploads, into dist/, checked by twine
	rm -rf dist $(ENVS)/release
	$(BIN)/python -m venv $(ENVS)/release
	$(ENVS)/release/bin/python -m pip install --quiet build twine
	$(ENVS)/release/bin/python -m build --outdir dist .
	$(ENVS)/release/bin/twine check --strict dist/*

# What the lowest versions are tried on; nothing: all fast tests.
MINIMUM_TESTS ?= $(addprefix tests/test_, $(addsuffix .py, import projections kernels \
    features estimator_checks ridge ridge_cv gaussian_process svc persistence \
    blocks sizing cli datasets cli_tables onnx))
minimum: $(ENVS)/minimum/stamp ## fast tests with the lowest versions of all that pyproject.toml names
	$(ONE_THREAD) $(ENVS)/minimum/bin/python -m pytest $(WORK) -m "not slow and not nightly" $(MINIMUM_TESTS) $(PYTEST_ARGS)

# The kernels of OpenBLAS that processors choose among. (NumPy's OpenBLAS has Haswell's for
# Zen; the first line of each run says which was loaded.) What no product of matrices
# can change is left out.
KERNELS ?= Haswell SkylakeX Zen Sandybridge Nehalem
NO_BLAS := cli columns compare damaged_files datasets documented files image_files import lab \
    notebook object_archive onnx pages persistence plots records rehearsal release render \
    reporting skips structure table_schema table_texts torch walks warnings written
blas: $(VENV)/test.stamp ## tests of numbers under five kernels of OpenBLAS, on one and two threads
	@failed=0; for kernel in $(KERNELS); do for threads in 1 2; do \
	    echo "OpenBLAS $$kernel, $$threads threads"; \
	    OPENBLAS_CORETYPE=$$kernel OMP_NUM_THREADS=$$threads OPENBLAS_NUM_THREADS=$$threads \
	        $(BIN)/python -m pytest $(WORK) -m "not nightly" \
	        $(addprefix --ignore-glob=tests/test_, $(addsuffix *, $(NO_BLAS))) \
	        tests src/randkern $(PYTEST_ARGS) || failed=1; \
	done; done; exit $$failed

nightly: coverage random blas pythons rehearsal ## every test, and what takes too long for every change

# SIZE=quick: minutes, on generated tables; full: an hour, on all data of RANDKERN_DATA.
SIZE ?= full
REHEARSAL ?= randkern-rehearsal
REHEARSAL_ARGS ?=
rehearsal: $(VENV)/test.stamp ## what users do, on tables of real size; SIZE=quick in minutes
	$(BIN)/python -m randkern_lab.rehearsal $(if $(filter quick,$(SIZE)),--quick) \
	    --out $(REHEARSAL) $(REHEARSAL_ARGS)

pythons: ## every test with each of Python 3.11 to 3.14 that is here (without PyTorch)
	WORKERS=$(WORKERS) .ci/pythons $(PYTEST_ARGS)

random: $(VENV)/test.stamp ## hypothesis with a new seed and more examples
	$(PYTEST) $(WORK) -m hypothesis --hypothesis-profile=random $(PYTEST_ARGS)

coverage: $(VENV)/test.stamp ## every test, nightly ones too, and the branches that none runs
	$(PYTEST) $(WORK) --strict-skips --cov --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

# RERUN=NAME or RERUN="NAME NAME" makes those again, RERUN=all every one, the oldest
# first; HOURS=1 those that fit in. An interrupted run continues. Data sets lie in
# RANDKERN_DATA.
RERUN ?=
HOURS ?=
records: $(VENV)/test.stamp ## recorded runs, their age and cost; RERUN=all makes them again
	$(BIN)/python -m randkern_lab.records benchmarks $(filter-out all,$(RERUN)) \
	    $(if $(RERUN),--rerun) $(if $(HOURS),--hours $(HOURS))

numbers: $(VENV)/test.stamp ## write the measured numbers of README and docs from the records
	$(BIN)/python -m randkern_lab.render

# All environments, one after the other: targets that run side by side find them made.
environments: $(VENV)/dev.stamp $(VENV)/docs.stamp $(VENV)/test.stamp $(ENVS)/minimum/stamp

clean: ## remove the environments and everything that was built
	rm -rf $(VENV) $(ENVS) build docs/_build docs/generated docs/auto_examples randkern-compare
	rm -rf docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf .numba_cache .coverage src/randkern.egg-info
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

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
$(VENV)/test.stamp: $(VENV)/torch.stamp
$(VENV)/dev.stamp: EXTRAS := dev
$(VENV)/docs.stamp: EXTRAS := docs
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	@echo "installing randkern[$(EXTRAS)] into $(VENV)"
	@$(PIP) install --quiet --no-compile --editable '.[$(EXTRAS)]'
	@touch $@

# lightonml, for its simulated device, names versions that no longer build: what its
# modules import comes beside it.
$(VENV)/torch.stamp: Makefile | $(BIN)/python
	@echo "installing $(TORCH) and lightonml into $(VENV)"
	@$(PIP) install --quiet --no-compile $(TORCH) 2>/dev/null \
	    || $(PIP) install --quiet --no-compile --extra-index-url $(TORCH_INDEX) $(TORCH)
	@$(PIP) install --quiet --no-compile attrs numexpr requests 'setuptools<81'
	@$(PIP) install --quiet --no-compile --no-deps lightonml==1.4.3
	@touch $@

$(ENVS)/minimum/stamp: pyproject.toml .ci/lowest.py | $(BIN)/python
	@echo "installing the lowest versions into $(ENVS)/minimum"
	@$(BIN)/python -m venv --clear $(ENVS)/minimum
	@$(BIN)/python .ci/lowest.py > $(ENVS)/minimum/constraints.txt
	@$(ENVS)/minimum/bin/python -m pip --disable-pip-version-check install --quiet \
	    --no-compile --editable '.[test]' --constraint $(ENVS)/minimum/constraints.txt
	@touch $@
