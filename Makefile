# `make sweep` and `make test` do all their own set-up. Everything lives in .venv; nothing else on the machine changes.
# PYTHON=... names an interpreter; else the first of these that is Python 3.11 or newer and can make environments. The
# tests were run with 3.11 to 3.13.
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3 python
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DOCS   := $(VENV)/.docs
ORACLE := $(VENV)/.oracle
IN_C   := tests/fedtext/models tests/fedtext/methods/test_hsic.py tests/fedtext/methods/test_kteps.py \
	tests/fedtext/training tests/fedtext/server/test_native_sums.py

# Many processes are started. Where nothing that is compiled may be kept, each would compile the library anew, for half a
# second.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install sweep run test test-all test-faults fuzz mutants sanitize check format ui docs docs-serve bench bench-peers clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/bin/python:
	@for name in $(or $(PYTHON),$(PYTHONS)); do \
		if "$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "$(VENV) is made with $$(command -v "$$name"), $$("$$name" --version)"; \
			exec "$$name" -m venv $(VENV); \
		fi; \
	done; \
	echo "fedtext needs Python 3.11 or newer with venv (on Debian and Ubuntu: python3-venv), and none of" \
		"$(or $(PYTHON),$(PYTHONS)) is that: install it, or name one with make PYTHON=..." >&2; \
	exit 2

# An environment that is there was made with the Python that it has: another one that is named would be ignored.
ifneq ($(PYTHON),)
$(VENV)/bin/python: | same-python
endif

.PHONY: same-python
same-python:
	@if [ -x "$(VENV)/bin/python" ]; then \
		version='import sys; print(*sys.version_info[:3], sep=".")'; \
		there="$$("$(VENV)/bin/python" -c "$$version")"; \
		if [ "$$("$(PYTHON)" -c "$$version" 2>/dev/null)" != "$$there" ]; then \
			echo "$(VENV) is Python $$there: make clean first to use $(PYTHON)" >&2; \
			exit 2; \
		fi; \
	fi

$(READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[platform,search,word2vec,dev]"
	@touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	@touch $@

$(ORACLE): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[oracle]"
	@touch $@

install: $(READY)  ## the environment in .venv

sweep: $(READY)  ## sweep KTEPS on the built-in corpus and compare it with FedAvg and Local-only
	$(BIN)/python -m platform.sweep demo.yaml

run: $(READY)  ## one run of the same experiment
	$(BIN)/python -m platform.run demo.yaml

# Tests that start Ray run in one process, all others beside them.
test: $(READY)  ## the tests, but for slow ones
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow and not faults"

test-all: $(DOCS) $(ORACLE)  ## all tests, those of several nodes and of long commands too
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-faults: $(READY)  ## those that take memory until Ray ends processes; nothing else should run meanwhile
	$(BIN)/python -m pytest -n 0 -m faults

fuzz: $(READY)  ## thousands of malformed experiments, corpora and folders of runs: each is to end in one sentence
	$(BIN)/python -m tests.fuzz --experiments 5000 --corpora 500 --published 1000 --runs 300

mutants: $(READY)  ## small faults put into the mathematics one by one: which of them no test notices
	$(BIN)/python -m tests.mutants

# Tests that compile with compilers of their own are left out. -O3 stays, so that what is checked is what runs.
sanitize: $(READY)  ## the tests of the C code, with gcc's checks of memory and arithmetic in it
	CC="gcc -g -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so) $$(gcc -print-file-name=libstdc++.so.6)" \
	ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc XDG_CACHE_HOME="$(CURDIR)/$(VENV)/sanitized" \
	$(BIN)/python -m pytest -n 0 -k "not compiler and not width_of_vectors" $(IN_C)

check: $(READY)  ## ruff, mypy and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

format: $(READY)  ## lay the code out
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ui: $(READY)  ## the MLflow pages of the runs made here
	$(BIN)/python -m dashboards.ui

docs: $(DOCS)  ## the reference from the code, and the documentation as a site, in site/
	$(BIN)/python -m docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: $(DOCS)  ## the same at http://127.0.0.1:8765, built again whenever a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:8765

bench: $(READY)  ## all benchmarks: local loop, platform, start-up, instruction counts
	$(BIN)/python -m benchmarks

bench-peers: $(READY)  ## the same maths in Flower and pfl-research, each in its own environment
	$(BIN)/python -m benchmarks.peers

clean:  ## remove the environment (runs and mlflow.db stay)
	rm -rf $(VENV)
