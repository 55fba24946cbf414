PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled then: pip would compile all of torch, a quarter of a minute.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
SOAK_S ?= 600
TEST_SETS := $(VENV)/.dev $(VENV)/.nixl $(if $(TORCH),$(VENV)/.torch)
# With the name MAKE in its recipe, `make -n test` would run the tests.
AGAIN := $(MAKE)
CHECKS := ruff imports types pages english
AT_ONCE := --no-print-directory --jobs=2 --output-sync=target
# A worker that dies ends the run: with another in its place, pytest-xdist waits for ever for what it was given.
PYTEST_ARGS ?= -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart=0 -q

# Compiled files are kept, whatever the surroundings say: tests start hundreds of processes that import the same.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all lint tools types ruff imports pages english collected site bench bench-peers bench-gpu gpu-kit soak model mutants faults conformance conformance-facts conformance-engines sglang vllm vllm-releases vllm-gpu sglang-gpu full goldens fmt install clean

help:  ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.core $(VENV)/.nixl  ## compile two plans, move a request between processes, check every byte (ARGS='--transport memory')
	@$(BIN)/kvplan demo $(ARGS)

# What hundreds of processes would each spend time on. UCX patches memory hooks, which only devices with memory of their
# own ask for, into running code, and waits 0.4 s for other threads (`make test-all` has them, as engines do); numpy's
# BLAS, which nothing here uses, starts threads; glibc gives large arrays back, only to have them cleared again.
test: export UCX_MEM_MMAP_HOOK_MODE ?= none
test: export OPENBLAS_NUM_THREADS ?= 1
test: export MALLOC_MMAP_THRESHOLD_ ?= 33554432
test: export MALLOC_TRIM_THRESHOLD_ ?= 1073741824
# What only reads runs beside the tests, which wait for each other and leave a core idle now and then.
test: tools  ## all tests, linters and type checks; TORCH=1 installs torch for its tests too
	@$(MAKE) $(AT_ONCE) $(TEST_SETS) collected
	@nice $(AGAIN) --no-print-directory $(CHECKS) >$(VENV)/.checks 2>&1 & \
	$(BIN)/python -m pytest -m "not full and not vllm" $(PYTEST_ARGS); tests=$$?; \
	wait $$! || { cat $(VENV)/.checks; exit 1; }; exit $$tests

test-all: lint  ## all of that and what takes longer: whole models, every engine, every fault, a soak
	$(BIN)/python -m pytest $(PYTEST_ARGS)
	@$(MAKE) full faults soak

lint: tools  ## linters, type checks and the documentation only
	@$(MAKE) $(AT_ONCE) $(TEST_SETS) $(CHECKS) collected

tools: $(BIN)/python
	@$(MAKE) $(AT_ONCE) $(VENV)/.dev $(if $(TORCH),$(VENV)/.torch-alone)

types:
	$(BIN)/mypy

ruff:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

imports:
	$(BIN)/lint-imports

pages:
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Words that readers had to decode, in docs, docstrings, comments and messages: the list is data.
english:
	$(BIN)/python -m tests.english

# Once, before three workers would do it at the same time: pytest compiles what it collects, after a change. Those that
# need torch are left out, as it may not be there yet.
collected: .pytest_cache/collected
	@:

.pytest_cache/collected: $(shell find tests -name '*.py') | $(VENV)/.nixl
	@$(BIN)/python -m pytest --collect-only -qq --ignore=tests/integrations/vllm/encoder >/dev/null && mkdir -p $(@D) && touch $@

site: $(VENV)/.dev  ## the documentation as a site, on port 8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: $(VENV)/.core $(VENV)/.nixl  ## measure what the design promises, as ratios
	@$(BIN)/kvplan bench $(ARGS)

bench-peers: $(VENV)/.core $(VENV)/.nixl  ## beside vLLM's connector, in what `make vllm` installs or KVPLAN_VLLM_ENV names, and loops over NIXL
	@KVPLAN_VLLM_ENV="$$($(BIN)/python -m tests.vllm.environment)" $(BIN)/kvplan bench peers $(ARGS)

bench-gpu: $(VENV)/.core $(VENV)/.nixl $(VENV)/.torch  ## between two processes in a GPU's memory, and copies there against memcpy
	@$(BIN)/kvplan bench gpu $(ARGS)

gpu-kit: $(VENV)/.dev  ## an archive for a machine with a GPU and no network: `sh gpu.sh` in it runs all that takes a GPU (ARGS=--python 3.12)
	@$(BIN)/python -m tests.gpu.kit $(ARGS)

soak: $(VENV)/.dev $(VENV)/.nixl  ## random requests and faults for SOAK_S seconds (600); the figures come last
	@PYTHONPATH=. $(BIN)/python -m tests.soak --seconds $(SOAK_S)

model: $(VENV)/.dev  ## every order of messages, copies and troubles of two protocol cores (ARGS=depth); prints how many states there are
	@PYTHONPATH=. nice -n 5 $(BIN)/python -m tests.runtime.explore $(ARGS)

mutants: $(VENV)/.dev $(VENV)/.nixl  ## change the code bit by bit, list changes that no test finds (ARGS=paths; --every N); cosmic-ray is in a cache
	@PYTHONPATH=. nice -n 5 $(BIN)/python -m tests.mutants $(ARGS)

faults: $(VENV)/.dev $(VENV)/.nixl  ## every fault at every step of a request, between processes and hosts
	SOAK_S=600 $(BIN)/python -m pytest -q -p no:cacheprovider tests/cluster/test_processes.py

conformance: $(VENV)/.dev  ## every architecture that engines serve: `new` and the layout against the engine's own dumps (ARGS=--accept: keep what changed)
	@$(BIN)/python -m tests.conformance $(ARGS)

conformance-facts: $(VENV)/.dev  ## ask a release of vLLM, or RELEASE=sglang|transformers, for the caches of every configuration (RELEASE=0.33.0 ARGS=words of keys); 2.5 GB in a cache
	@$(BIN)/python -m tests.conformance.facts $(RELEASE) $(ARGS)

conformance-engines: $(VENV)/.dev  ## what the dumps say of a layer, beside real vLLM engines on CPUs: a small model of each kind; in the environment of `make vllm`
	@nice -n 5 $(BIN)/python -m pytest -q -m vllm tests/conformance/test_real_engine.py

sglang: $(VENV)/.dev  ## real SGLang engines on kvplan, token by token (ARGS=words of cases); installs SGLang once, 1.6 GB, in a cache
	@nice -n 5 $(BIN)/python -m tests.sglang $(ARGS)

vllm: $(VENV)/.dev  ## real vLLM engines on kvplan, token by token (ARGS=words of cases); installs vLLM once, 2 GB, in a cache
	@nice -n 5 $(BIN)/python -m tests.vllm --times $(ARGS)
	@nice -n 5 $(BIN)/python -m pytest -q -m vllm tests/vllm/test_items.py

vllm-releases: $(VENV)/.dev  ## the connector in vLLM 0.31 to 0.33, without a model; installs their code once, 110 MB, in a cache
	@$(BIN)/python -m tests.vllm.releases
	@nice -n 5 $(BIN)/python -m pytest -q tests/vllm/test_releases.py

vllm-gpu: $(VENV)/.dev  ## what only GPUs show of that, in the environment that KVPLAN_VLLM_ENV names; ends with 3 where there is none
	@$(BIN)/python -m tests.vllm.gpu $(ARGS)

sglang-gpu: $(VENV)/.dev  ## what only GPUs show of SGLang, in the environment that KVPLAN_SGLANG_ENV names; ends with 3 where there is none
	@$(BIN)/python -m tests.sglang.gpu $(ARGS)

full: $(VENV)/.dev  ## simulate a model of every kind of cache in full size
	@PYTHONPATH=. $(BIN)/python tests/layouts/full.py

goldens: $(VENV)/.dev  ## write again what is generated: plans, digests, excerpts, tables, the gallery
	$(BIN)/kvplan compile examples/gallery.yaml -o examples/plans --prune
	$(BIN)/python -m tests.golden.digests > examples/digests.txt
	$(BIN)/python -m tests.golden.readme
	$(BIN)/python -m tests.golden.compatibility
	$(BIN)/python -m tests.golden.dsl_page
	$(BIN)/python -m tests.conformance.page
	$(BIN)/python -m tests.golden.gallery.write
	$(BIN)/python -m tests.golden.figures
	$(BIN)/python -m tests.runtime.page
	git status --short examples layouts/architectures.json README.md docs

fmt: $(VENV)/.dev  ## format and sort imports
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

install: $(VENV)/.core $(VENV)/.nixl  ## the environment only

clean:  ## remove the environment and all caches
	rm -rf $(VENV) build dist src/*.egg-info .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvplan needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@echo "making $(VENV)" && $(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing kvplan" && $(PIP) --editable . && touch $@

# kvplan itself comes with them: a second run of pip would build it again.
$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing kvplan and the test tools" && $(PIP) --editable '.[dev]' && touch $(VENV)/.core $@

# The small set: the usual dependencies of these wheels are several gigabytes that a CPU does not need.
$(VENV)/.nixl: constraints.txt | $(VENV)/.core
	@if ! $(BIN)/python -c 'import platform, sys; sys.exit((sys.platform, platform.machine()) not in [("linux", "x86_64"), ("linux", "aarch64")])'; \
	then echo "NIXL has no wheels for this platform: going on without"; \
	elif $(PIP) --no-deps nixl nixl-cu12; then touch $@; \
	else echo "NIXL could not be installed: going on without"; fi

# Alone it shares no file with the test tools, so both are installed at once; later runs of pip come one by one.
$(VENV)/.torch-alone: constraints.txt | $(BIN)/python
	@$(PIP) --no-deps torch && touch $@

$(VENV)/.torch: $(VENV)/.dev | $(VENV)/.nixl $(VENV)/.torch-alone
	@echo "installing torch" && $(PIP) torch && touch $@
