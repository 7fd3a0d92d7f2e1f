# Everything runs from .venv, which `make setup` creates and keeps up to date.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
RAWLS := $(VENV)/bin/rawls
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
# Twice quiet: errors only.
PIP_INSTALL := $(PYTHON) -m pip install -qq --disable-pip-version-check --retries 10 --constraint constraints.txt

# The demonstration: five methods, three seeds, on the digits that scikit-learn carries.
DEMO_TABLE := asc/table1 dataset=digits privacy=eps8
DEMO_FIGURE := asc/fig2 dataset=digits privacy=eps8

# What the tests marked `system` need.
SYSTEM_PACKAGES := munge slurm-wlm chromium

# Test processes, one thread each.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest


# Of `make fuzz` and `make faults`; what of the latter lies beside the code that it disturbs.
CASES ?= 5000
SEED ?= 0
POSITIONS ?= 200
FAULTS := tests/runners/schedule/test_kill.py tests/runners/store tests/runners/process tests/runners/schedule/test_retrain.py \
    tests/runners/schedule/backends/test_local.py

.PHONY: help setup demo docs test test-system test-nightly fuzz faults crosscheck lint bench tables clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Install the suite and its exact dependencies into .venv

# torch comes first, so that whatever build of it pip finds here (CPU or CUDA) is the one that everything else
# meets. torchvision pins torch: without its dependencies it cannot bring a second one. setuptools comes with torch.
$(STAMP): pyproject.toml constraints.txt
	@if ! $(PYTHON) -c 'import pip' 2>/dev/null; then \
	    for python in python3.11 python3 python3.12 python3.13; do \
	        if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
	        python=; \
	    done; \
	    if [ -z "$$python" ]; then echo "rawls needs Python 3.11 or newer with its venv module (python3.11-venv)" >&2; exit 1; fi; \
	    echo "creating $(VENV) with $$($$python --version)"; \
	    $$python -m venv --clear $(VENV); \
	fi
	@echo "installing torch (the first time it is downloaded: some minutes on a slow line)"
	@$(PIP_INSTALL) torch setuptools
	@echo "installing torchvision"
	@$(PIP_INSTALL) --no-deps torchvision
	@echo "installing rawls and the rest"
	@$(PIP_INSTALL) --no-build-isolation --editable '.[test]'
	@echo "composing what the targets ask for, once (half a minute; later commands need not)"
	-@$(RAWLS) targets >/dev/null
	@touch $@

demo: $(STAMP)  ## Train the five methods of ASC's Table 1 on small real data: table and learning curves
	$(RAWLS) reproduce $(DEMO_TABLE)
	$(RAWLS) reproduce $(DEMO_FIGURE)

$(DOCS_STAMP): $(STAMP)
	@echo "installing what builds the site"
	@$(PIP_INSTALL) --no-build-isolation --editable '.[docs]'
	@touch $@

docs: $(DOCS_STAMP)  ## Build the site of docs/ into site/
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo "Written: site/index.html"

lint: $(STAMP)  ## Style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

# Types are checked beside the tests: a whole minute of one core.
test: $(STAMP)  ## Style, types, and every test that needs no system package
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy & types=$$!; tests=0; \
	$(PYTEST) -m "not system and not nightly" --numprocesses $(JOBS) --dist worksteal --durations 15 || tests=$$?; \
	wait $$types; exit $$tests

# As root on Debian they are installed; elsewhere a test whose packages are not there is skipped, and in CI it fails.
test-system: $(STAMP)  ## The tests that need system packages, and the long ones
	@if ! { command -v sbatch && command -v chromium; } >/dev/null && [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $(SYSTEM_PACKAGES)"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq && apt-get install -qq --yes --no-install-recommends $(SYSTEM_PACKAGES) >/dev/null; \
	fi
	@$(PYTEST) -m system || { code=$$?; if [ $$code -eq 5 ]; then echo "no test needs system packages"; else exit $$code; fi; }

test-nightly: $(STAMP) $(DOCS_STAMP)  ## Wider forms of what other tests test: more kills, every method of every target, audits of solvers
	$(PYTEST) -m nightly --numprocesses $(JOBS) --dist worksteal --durations 15

fuzz: $(STAMP)  ## Configurations, command lines, stored files and archives of any content (CASES=5000, SEED=0)
	OMP_NUM_THREADS=1 RAWLS_CASES=$(CASES) RAWLS_SEED=$(SEED) $(PYTHON) -m pytest tests/fuzz -q

faults: $(STAMP)  ## Faults in every phase: bits, files, disks, kills, links; POSITIONS=200 bits of each file
	OMP_NUM_THREADS=1 RAWLS_POSITIONS=$(POSITIONS) $(PYTHON) -m pytest tests/faults $(FAULTS) -q

crosscheck: $(STAMP)  ## Every accountant against integrals and other code, over the whole grid (40 minutes)
	OMP_NUM_THREADS=1 $(PYTHON) -m tests.accounting.crosscheck.record

bench: $(STAMP)  ## Speed and memory against Opacus
	$(RAWLS) bench

tables: $(STAMP)  ## Draw every table and figure again from the saved results
	@find results/targets -name manifest.json -exec $(RAWLS) render {} ';'

clean:  ## Remove the environment and every cache (results are kept)
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
