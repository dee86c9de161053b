# Two commands do everything: `make demo` (try it) and `make test` (check it).
# `make help` lists the rest.

VENV      := .venv
BIN       := $(VENV)/bin
PY        := $(BIN)/python
PIP       := $(PY) -m pip --disable-pip-version-check --quiet
# The first Python of 3.11 to 3.13 on the PATH; PYTHON=… overrides.
PYTHON    ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
               if $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' 2>/dev/null; \
               then echo $$p; break; fi; done)
TORCH_INDEX ?=
# pip is quiet; who waits should know that it works.
INSTALLING := installing into $(VENV), one to two minutes on a fast line …
# Twice the cores of a small machine: many tests wait for servers, links and processes.
XDIST     ?= -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: help demo test lint types contracts agent-language pytest test-long test-engine test-gpu \
        gpu-report wheel-check docs clean

help: ## this list
	@awk -F':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- setting up

$(PY):
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11, 3.12 or 3.13 on the PATH (or PYTHON=/path/to/python3)"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) lacks the venv module (Debian, Ubuntu: apt install python3-venv)"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: | $(PY)
ifneq ($(TORCH_INDEX),)
	@echo "$(INSTALLING)"
	$(PIP) install -c constraints.txt --index-url "$(TORCH_INDEX)" "torch>=2.9,<3"
else
	@$(PY) tools/torch_download.py
endif
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "$(INSTALLING)"
	$(PIP) install -c constraints.txt -e '.[server]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "$(INSTALLING)"
	$(PIP) install -c constraints.txt -e '.[server,test]'
	@touch $@ $(VENV)/.demo

# ---- the two commands

demo: $(VENV)/.demo ## install, then open the console on this machine with the bundled server
	@$(BIN)/specops console --demo

test: lint types contracts agent-language pytest ## lint, types, import contracts, agent language, tests

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

contracts: $(VENV)/.test
	$(BIN)/lint-imports

# The agent runs on whatever python3 a host has.
agent-language: $(VENV)/.test
	$(BIN)/vermin --no-tips --no-parse-comments --violations -t=3.8- console/agent console/planning/hostprobe.py

pytest: $(VENV)/.test
	$(BIN)/pytest $(XDIST)

# ---- longer and by hand

test-long: $(VENV)/.test ## the long counts in full (≤ 60 min, resumable: PART=name)
	$(PY) tools/test_long.py $(PART)

# SGLang's own argument code, on a CPU, in a venv of its own (2.1 GB) because it pins torch.
.venv-engine/.done: tests/engine/requirements.txt
	$(PYTHON) -m venv .venv-engine
	.venv-engine/bin/pip install -q $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	.venv-engine/bin/pip install -q --no-deps torchvision triton sglang==0.5.12.post1
	.venv-engine/bin/pip install -q torch==2.13.0 -r tests/engine/requirements.txt
	@touch $@

test-engine: $(VENV)/.test .venv-engine/.done ## preflight's verdicts against the real SGLang's
	$(PY) -m tests.engine.verdicts .venv-engine/bin/python

test-gpu: $(VENV)/.test ## on a real NVIDIA GPU with SGLang: PART=nvml, pair, lifecycle, ranks or failures-{a,b,c,d}
	$(PY) -m tests.gpu $(or $(PART),nvml) --out docs/gpu

gpu-report: $(VENV)/.demo ## write docs/gpu-report.md from the results in docs/gpu
	@$(PY) -m tests.gpu.report

wheel-check: $(VENV)/.test ## build the wheel, install it elsewhere, run from there
	bash tools/wheel_check.sh

docs: $(VENV)/.demo ## write the generated pages of docs/
	$(PY) tools/write_docs.py

bench-%: $(VENV)/.test ## bench-agent, bench-console, bench-logs, bench-diagnose, bench-server: ratios, never in CI (PART=)
	$(PY) -m tests.bench.$* $(PART)

clean: ## remove what make made (not weights, not caches of test hosts)
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
