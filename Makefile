# `make demo` and `make test` are all a fresh machine needs: each brings .venv up to date first, and is silent when it is.
# PYTHON=/path/to/python chooses the interpreter, ARGS="-k name" is handed on to pytest, the demo or the benchmarks;
# ARGS="-n 0" runs the tests one after the other, in one process.
.DEFAULT_GOAL := help
.PHONY: help demo test nightly sim check bench lock clean
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
# The modules that pytest rewrites are kept compiled, also where the environment says that Python should not: each of its
# processes reads all of them, and compiling takes twice as long as the rest of collecting.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
FOLDERS := package eventlog projections runtime adapters replay
ARGS :=
# More than there are cores, since tests wait for other processes half of their time; who has none left takes another's.
PARALLEL := -n 4 --dist worksteal
# The directories too: their time changes when a file goes.
SOURCES := pyproject.toml setup.py README.md LICENSE $(shell find $(FOLDERS) ! -name '*.pyc' ! -name __pycache__)
# A virtual environment whose interpreter was removed is made again.
BROKEN := $(shell test -x $(BIN)/python || echo broken)
UV = command -v uv >/dev/null 2>&1

help:
	@echo "make demo     one agent on two executors, a worker killed in between, both traces compared"
	@echo "make test     the tests"
	@echo "make nightly  the long tests, in shards, each reported as it ends"
	@echo "make sim      random schedules of the whole runtime for a minute, or as ARGS=\"--for 10m\" says"
	@echo "make check    lint, format and types, the types of the package as it is installed"
	@echo "make bench    the measurements; ARGS=--list lists them, ARGS=--install installs the peers"
	@echo "make lock     choose the versions of all dependencies again (needs uv)"
	@echo "make clean    remove everything that make made"

demo: $(VENV)/installed
	@$(BIN)/foldlog demo $(ARGS)

test: $(VENV)/installed
	@$(PYTEST) $(PARALLEL) $(ARGS)

nightly: $(VENV)/installed
	@$(PYTEST) $(PARALLEL) -v --durations=10 -m "nightly or hypothesis" --hypothesis-profile nightly $(ARGS)

sim: $(VENV)/installed
	@$(BIN)/foldlog simulate $(or $(ARGS),--for 60s)

# mypy runs inside .venv, where the folders of the source tree are out of sight: what it reads is what users get.
check: $(VENV)/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@cd $(VENV) && bin/mypy --config-file ../pyproject.toml --cache-dir ../.cache/mypy -p foldlog

bench: $(VENV)/installed
	@$(BIN)/python -m benchmarks $(ARGS)

# The lock names every distribution, so pip has nothing to look for; where it looks, it finds no hash for an extra of a
# locked distribution ("google-auth[requests]") and gives up.
$(VENV)/locked: requirements.lock $(BROKEN)
	@rm -rf $(VENV)
	@python=$$(PYTHON="$(PYTHON)" sh .ci/find-python) || exit 1; \
	if $(UV); then \
	    echo "Installing the locked dependencies into $(VENV) with uv and $$python"; \
	    uv venv --quiet --python "$$python" $(VENV) && \
	    uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock; \
	else \
	    echo "Installing the locked dependencies into $(VENV) with pip and $$python (about a minute)"; \
	    "$$python" -m venv $(VENV) && \
	    $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-deps \
	        --require-hashes -r requirements.lock; \
	fi
	@touch $@

# Not editable, so that what is tested is what is shipped. build/ would carry files that are gone into the next wheel.
$(VENV)/installed: $(VENV)/locked $(SOURCES)
	@echo "Installing foldlog into $(VENV)"
	@rm -rf build
	@if $(UV); then \
	    uv pip install --quiet --compile-bytecode --python $(BIN)/python \
	        --no-deps --no-build-isolation --reinstall-package foldlog .; \
	else \
	    $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
	        --no-deps --no-build-isolation --force-reinstall .; \
	fi
	@rm -rf build
	@touch $@

.PHONY: broken
broken:

lock:
	@$(UV) || { echo "make lock: uv is not on the PATH" >&2; exit 1; }
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
	    --extra dev pyproject.toml -o requirements.lock
	echo 'setuptools>=80' | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-annotate -c requirements.lock pyproject.toml - -o deploy/requirements.lock

# The logs of the embedded server, in .foldlog, are the user's and stay.
clean:
	rm -rf $(VENV) .cache .hypothesis build dist foldlog.egg-info
	find $(FOLDERS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
