# `make sweep` and `make test` do all their own set-up. Everything lives in .venv; nothing else on the machine changes.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help install sweep run test mutants check format ui bench bench-peers clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed; fedtext needs Python 3.11 or newer: install it, or name one with make PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[platform,word2vec,dev]"
	@touch $@

install: $(READY)  ## the environment in .venv

sweep: $(READY)  ## sweep KTEPS on the built-in corpus and compare it with FedAvg and Local-only
	$(BIN)/python -m platform.sweep demo.yaml

run: $(READY)  ## one run of the same experiment
	$(BIN)/python -m platform.run demo.yaml

test: $(READY)  ## all tests, those that start Ray in one process and all others beside them
	$(BIN)/python -m pytest -n 2 --dist loadgroup

mutants: $(READY)  ## small faults put into the mathematics one by one: which of them no test notices
	$(BIN)/python -m tests.mutants

check: $(READY)  ## ruff, mypy and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

format: $(READY)  ## lay the code out
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ui: $(READY)  ## the MLflow pages of the runs made here
	$(BIN)/mlflow ui --backend-store-uri sqlite:///mlflow.db --port 5000

bench: $(READY)  ## all benchmarks: local loop, platform, start-up, instruction counts
	$(BIN)/python -m benchmarks

bench-peers: $(READY)  ## the same maths in Flower and pfl-research, each in its own environment
	$(BIN)/python -m benchmarks.peers

clean:  ## remove the environment (runs and mlflow.db stay)
	rm -rf $(VENV)
