# make quickstart   create .venv, install, search, train and evaluate on the bundled benchmark
# make test         create .venv if it is missing and run the tests
# make lint types   linters and type checks, as the continuous integration runs them

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Where to take torch from; for instance the address of PyTorch's CPU wheels on a machine without a GPU.
TORCH_INDEX ?=

# Processes that the tests are shared among.
TEST_WORKERS ?= 2

.PHONY: quickstart test lint types check base clean-venv

quickstart: $(VENV)/.installed
	$(RUN) train.py fit --config configs/quickstart.yaml

# A file of tests stays in one process, with its fixtures. One thread each: more threads than cores are slow.
test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(TEST_WORKERS) --dist loadfile

lint: $(VENV)/.installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/.installed
	$(RUN) -m mypy

check: lint types test

# Makes the bundled base model anew; see configs/quickstart_base.yaml.
base: $(VENV)/.installed
	$(RUN) train.py fit --config configs/quickstart_base.yaml

# torch first and alone, so that no other package's requirement picks another build of it.
$(VENV)/.installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean-venv:
	rm -rf $(VENV)
