# Every target sets up what it needs. PYTHON picks the interpreter, VENV the place of its environment.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ARGS ?=
SECONDS ?= 120

.PHONY: setup demo test check bench bench-quick storm crash mutants oracles wheel clean

setup: $(VENV)/.ready

$(VENV)/.ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fast,embedded,test,check]'
	touch $@

demo: setup
	$(BIN)/python manage.py wurk --demo $(ARGS)

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -W error -m django check --settings example_project.settings

bench: setup
	$(BIN)/python -m bench.run --write-docs $(ARGS)

bench-quick: setup
	$(BIN)/python -m bench.run --quick $(ARGS)

storm: setup
	$(BIN)/python -m tests.storm $(if $(SEED),--seed $(SEED)) --seconds $(SECONDS) $(ARGS)

crash: setup
	$(BIN)/python -m tests.enumerator $(or $(ARGS),--share 4000)

mutants: setup
	$(BIN)/python -m tests.mutants $(ARGS)

oracles: setup
	$(BIN)/python -m tests.oracles $(ARGS)

wheel: setup
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info .wurk
