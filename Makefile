# `make demo`, `make check` and `make test` do everything, in a virtual environment of their own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Real data, where a folder of it lies beside the checkout; else what the user has set.
export LNTRUST_DATA ?= $(abspath $(wildcard ../shared/data))
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

CODE := src tests benchmarks examples
# Tests without processes, browsers and long runs; `make test` has all.
FAST := tests/core tests/study tests/trust tests/network tests/world tests/methods/lntrust tests/test_flow.py

.PHONY: demo check test format clean

demo: $(VENV)/.installed
	$(BIN)/lntrust run

check: $(VENV)/.installed-test
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile $(FAST)

test: $(VENV)/.installed-test
	@tests/find_chromium.sh >/dev/null
	-@tests/find_faketime.sh >/dev/null
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder  # tests of one file share a fleet; long files are not last

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean:
	rm -rf $(VENV) .venv-mlserver runs

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[test]'
	touch $@ $(VENV)/.installed
