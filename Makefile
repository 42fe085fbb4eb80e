# The commands of this project; CI calls these and nothing else. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first Python on this machine that will do; packaging/setup_env.py says so where there is none.
PYTHON ?= $(shell for it in python3.11 python3 python3.12 python3.13; do \
	$$it -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$it && exit; done; echo python3)
GPU ?=
VENV := .venv$(if $(GPU),-gpu)
BIN := $(VENV)/bin
PROFILE ?=
SETUP := $(PYTHON) packaging/setup_env.py $(if $(GPU),--gpu)
CODE := server tests benchmarks packaging
NODE_STAMP := web/node_modules/.package-lock.json

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## the environment from the lock (GPU=1: with stock vllm, in .venv-gpu)
	@$(SETUP)

.PHONY: setup-dev
setup-dev:
	@$(SETUP) --dev

.PHONY: models
models: setup ## fetch and convert the embedded models (PROFILE=tiny or small)
	@$(BIN)/duolog models prepare --profile $(or $(PROFILE),small)

.PHONY: run
run: setup ## everything: set-up, models, Valkey, vLLM and the server (PROFILE=tiny: the small test model)
	@$(if $(PROFILE),DUOLOG__PROFILE=$(PROFILE)) $(BIN)/duolog up

.PHONY: dev
dev: setup-dev $(NODE_STAMP) ## as run, with the small test model and debug logs
	@DUOLOG__PROFILE=tiny DUOLOG__LOGGING__LEVEL=debug $(BIN)/duolog up

.PHONY: format
format: setup-dev ## format the Python code
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

.PHONY: check
check: setup-dev web-tools ## format, lint, types, layers, the page's types, configuration and personas
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	MYPYPATH=server:. $(BIN)/mypy --explicit-package-bases tests benchmarks packaging
	$(BIN)/lint-imports
	npm --prefix web run --silent check
	$(BIN)/duolog personas check
	$(BIN)/python packaging/check_configs.py

.PHONY: test
test: setup-dev web-tools browser prometheus ## what CI runs: set-up, every check, every test
	@$(BIN)/duolog models prepare --profile tiny
	@$(MAKE) --no-print-directory check
	$(BIN)/pytest
	npm --prefix web test

.PHONY: test-all
test-all: test bench ## the tests, then the benchmark of a call

.PHONY: soak
soak: setup-dev ## 2,000 random interruptions in virtual time, some minutes
	DUOLOG_RANDOM_TURNS=2000 $(BIN)/pytest -q tests/session/test_random_calls.py

.PHONY: coverage
coverage: setup-dev ## the Python tests, with the lines that none of them runs
	$(BIN)/coverage run --source=server/duolog -m pytest
	$(BIN)/coverage report --show-missing --skip-covered

.PHONY: bench
bench: bench-call ## every benchmark that needs nothing but this project

.PHONY: bench-call
bench-call: setup-dev ## latency of real calls, 1, 2 and 4 at once, with both models, and our own share of it
	@$(BIN)/duolog models prepare --profile tiny
	@$(BIN)/duolog models prepare --profile small
	$(BIN)/python -m benchmarks.call
	$(BIN)/python -m benchmarks.call --profile small --calls 1 --out benchmarks/results/call_latency_small.json
	$(BIN)/python -m benchmarks.call --scripted

.PHONY: bench-speech
bench-speech: setup-dev ## the recognizer beside faster-whisper's own transcribe, and the voice
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.asr
	$(BIN)/python -m benchmarks.tts

.PHONY: bench-recognizer
bench-recognizer: setup-dev ## what the recognizer gains from batches, and what callers wait for them
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.recognizer

.PHONY: bench-memory
bench-memory: setup-dev ## memory of the server: with all speech models, for each idle call, after 500 calls
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.memory

.PHONY: bench-barge-in
bench-barge-in: setup-dev web-tools browser ## how fast words silence the answer, and what does not, with real engines
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.eval --parts scenarios --repeat 3 --out benchmarks/results/barge_in.json
	$(BIN)/python -m benchmarks.page_silence

.PHONY: bench-peer
bench-peer: setup-dev ## the same calls against Pipecat, side by side
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.peer

.PHONY: bench-endpointing
bench-endpointing: setup-dev ## how often speakers are cut off, against how long they wait
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.endpointing

.PHONY: bench-prefill
bench-prefill: setup-dev ## first token with and without prefilling while the user speaks
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.prefill

.PHONY: bench-batcher
bench-batcher: setup-dev ## the batcher's policies and engines: answers a second against the tail (QUICK=1: 5 minutes)
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.batcher $(if $(QUICK),--quick)

.PHONY: eval
eval: setup-dev ## how well calls go, on the real stack (PARTS=noise,pauses: only these)
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.eval $(if $(PARTS),--parts $(PARTS))

.PHONY: bench-pins
bench-pins: setup-dev ## sessions kept warm against the cache alone, and a replica that dies
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.pins lru
	$(BIN)/python -m benchmarks.pins kept
	$(BIN)/python -m benchmarks.pins kill

.PHONY: bench-warmup
bench-warmup: setup-dev ## the first turn of a fresh server beside later ones, personas warmed up and not
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.warmup

.PHONY: bench-load
bench-load: setup-dev ## how many calls hold, what twice as many do, and whether the server comes back
	@$(BIN)/duolog models prepare --profile tiny
	$(BIN)/python -m benchmarks.overload

.PHONY: doctor
doctor: setup ## look at every part of the installation and say how to mend it
	@$(BIN)/duolog doctor

.PHONY: lock
lock: ## make requirements/*.txt from requirements/*.in (needs a network)
	$(PYTHON) packaging/lock.py

.PHONY: clean
clean: ## remove what the tests and tools leave; models and environments stay (clean-all removes them)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	find server tests benchmarks packaging -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: clean-all
clean-all: clean ## remove the environments, the models and the page's tools, too
	rm -rf .venv .venv-gpu .venv-peer .duolog web/node_modules

.PHONY: web-tools
web-tools: node $(NODE_STAMP)

$(NODE_STAMP): web/package-lock.json
	@echo "Fetching the page's test tools (npm ci, some 30 MB)"
	@cd web && npm ci --no-audit --no-fund
	@touch $@

.PHONY: node
node:
	@packaging/system_tool.sh node nodejs npm

.PHONY: browser
browser:
	@packaging/system_tool.sh chromium chromium

.PHONY: prometheus
prometheus:
	@packaging/system_tool.sh promtool prometheus
