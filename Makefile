# `make demo` and `make test` do all set-up themselves: they need make and a Python from 3.10 to 3.13.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: demo test models bench clean

demo: $(INSTALLED)
	$(BIN)/coreproof lower examples/camera_policy.py:policy -o camera_policy.pte

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not slow and not models"

models: $(INSTALLED)
	$(BIN)/python -m pytest tests/models

bench: $(INSTALLED)
	$(BIN)/python benchmarks/lowering.py

clean:
	rm -rf $(VENV) camera_policy.pte

# The three large packages come first and exact: a resolver that may choose among versions can end up with a build
# of torch for another machine (several GB).
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 10) <= v < (3, 14) or \
		sys.exit("coreproof needs Python 3.10 to 3.13, found %d.%d: run make PYTHON=python3.11" % v)'
	@echo 'Installing torch, executorch and coremltools in $(VENV): several minutes the first time'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0 executorch==1.5.1 coremltools==9.0
	$(BIN)/python -m pip install --quiet -e '.[test,dev]'
	touch $@
