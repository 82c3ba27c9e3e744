# `make demo` and `make test` do everything; both install what they need into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOCAL := --no-deps --no-build-isolation

INTEGRATIONS := integrations/llama-index-postprocessor-isr integrations/langchain-isr integrations/isr-haystack integrations/pytest-isr-rag
OTHERS := server lab integrations/isr-rag-conformance

.PHONY: install test check docs demo clean

install: $(INSTALLED)

# In two processes (JOBS=0: in one), each file in one of them. They and the kernel of a notebook may take 13 GB of memory.
# One thread each, since two threads in each of two processes only wait for one another on two cores.
# In the order of the folders: by the number of their tests, as pytest-xdist would, the notebooks came last, in one process.
# Tests of deadlines and limits drive real servers: what failed beside other tests has to pass alone.
JOBS ?= 2
SPREAD := -n $(JOBS) --dist loadfile --no-loadscope-reorder
ALONE := --last-failed --last-failed-no-failures none
test: export OMP_NUM_THREADS ?= 1
test: install
	$(BIN)/isr-rag setup
	$(BIN)/python -m pytest $(SPREAD) || $(BIN)/python -m pytest $(ALONE)
	for package in $(INTEGRATIONS); do \
		(cd $$package && ($(CURDIR)/$(BIN)/python -m pytest $(SPREAD) || $(CURDIR)/$(BIN)/python -m pytest $(ALONE))) || exit 1; \
	done

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	for package in $(OTHERS) $(INTEGRATIONS); do \
		(cd $$package && $(CURDIR)/$(BIN)/mypy && $(CURDIR)/$(BIN)/pyright --pythonpath $(CURDIR)/$(BIN)/python) || exit 1; \
	done

# The documentation as a site in site/; a broken link or reference is an error.
docs: install
	$(if $(HASHED),,$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]')
	$(BIN)/mkdocs build --strict

demo: install
	$(BIN)/isr-rag setup
	$(BIN)/isr-rag demo

# With HASHED=1 nothing is installed but what is pinned and has the hash of the public index, the tools that build included.
# Without, torch by its exact version first: any other request for it could pull a build with gigabytes of CUDA libraries.
$(INSTALLED): pyproject.toml constraints.txt $(OTHERS:%=%/pyproject.toml) $(INTEGRATIONS:%=%/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
ifdef HASHED
	for list in deploy/build.txt constraints.hashes.txt deploy/torch.txt; do \
		$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement $$list || exit 1; \
	done
	$(BIN)/python -m pip install --quiet $(LOCAL) --editable . $(OTHERS:%=--editable '%') $(INTEGRATIONS:%=--editable '%')
else
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]' $(patsubst %,--editable '%',$(patsubst lab,lab[ray],$(patsubst server,server[dev],$(OTHERS))))
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(INTEGRATIONS:%=--editable '%[dev]')
endif
	touch $@

clean:
	rm -rf $(VENV) .venv-versions .pytest_cache .mypy_cache .ruff_cache .hypothesis site
