# make demo | test | test-all | lint | docs | wheel: each does all the set-up it needs, once, and then its job.
#   PYTHON=python3.12 make test    picks an interpreter; VENV=folder another environment

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One build folder per environment, so that switching interpreters rebuilds nothing twice.
BUILD := build/$(notdir $(VENV))
# Compiled files change rarely; Python files are used in place (an editable install).
NATIVE := pyproject.toml CMakeLists.txt $(shell find plugin jax_graphenc/include/abi -type f)
VERSION := $(shell $(PYTHON) -c 'import sys; print(".".join(map(str, sys.version_info[:2])))')
# Where this changes, the environment is made anew.
STAMP := $(VENV)/made-by-python-$(VERSION)
# An editable install knows the files of its day: where one has come, gone or moved, it is made anew.
MODULES := $(VENV)/modules-$(firstword $(shell find jax_graphenc -name '*.py' | LC_ALL=C sort | cksum))

.PHONY: demo test test-all test-python test-slow fuzz soak test-cpp test-asan test-tsan lint docs wheel \
	format clean install

demo: install
	$(BIN)/python examples/perona_malik.py

# The quick tests; and all of them.
test: test-cpp test-python
test-all: test test-slow

install: $(VENV)/installed

$(STAMP):
	@test -n "$(VERSION)" || { echo "$(PYTHON) was not found or does not run; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is Python $(VERSION); 3.11 or later is needed: set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "$(PYTHON) lacks venv: apt install python3-venv" >&2; exit 1; }
	@command -v $${CXX:-g++} > /dev/null || { echo "no C++ compiler: apt install g++" >&2; exit 1; }
	@echo "making $(VENV) with Python $(VERSION), once: downloads about 400 MB"
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(MODULES): $(STAMP)
	rm -f $(VENV)/modules-*
	touch $@

$(VENV)/installed: $(STAMP) $(MODULES) $(NATIVE)
	@echo "installing what is needed and building the extension: two or three minutes the first time"
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# XLA compiles a small module on one core, so two processes take half the time; a file stays in one.
test-python: install
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile

test-slow: install
	$(BIN)/python -m pytest -m slow --numprocesses 2 --dist loadfile

# Random work against numpy, at length.
fuzz: install
	JAX_GRAPHENC_FUZZ_EXAMPLES=20000 $(BIN)/python -m pytest tests/python/test_encoder_fuzz.py \
		tests/python/test_graph_fuzz.py tests/python/test_api_fuzz.py

# Many threads that do everything at random, for so many seconds; ARGS="--seed 7" as tests/soak says.
SECONDS ?= 60
soak: install
	$(BIN)/python tests/soak $(SECONDS) $(ARGS)

# The C++ tests need headers only, and take cmake and ninja from the environment.
test-cpp: install
	@$(call cpp_tests,dev)

test-asan: install
	@$(call cpp_tests,asan)

test-tsan: install
	@$(call cpp_tests,tsan)

define cpp_tests
PATH="$(abspath $(BIN)):$$PATH" && \
cmake --preset $(1) -B $(BUILD)-$(1) -DPython_EXECUTABLE=$(abspath $(BIN))/python --log-level=WARNING && \
echo "building the C++ tests" && \
cmake --build $(BUILD)-$(1) -- --quiet && \
ctest --test-dir $(BUILD)-$(1) --output-on-failure --no-tests=error
endef

# An sdist and, from it, a wheel, in dist/, tested in an environment of its own.
wheel: install
	$(BIN)/python -m pip install --quiet build abi3audit auditwheel
	$(BIN)/python tools/wheel.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files '*.h' '*.cc' '*.cu' | xargs $(BIN)/clang-format --dry-run --Werror

# Warnings are errors, and so is a name that leads nowhere. Nothing is fetched.
docs: install
	$(BIN)/sphinx-build -W -n --keep-going --quiet -b html docs $(BUILD)-docs
	@echo "open $(BUILD)-docs/index.html"

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.h' '*.cc' '*.cu' | xargs $(BIN)/clang-format -i

clean:
	rm -rf .venv .venv-* build dist demo.png
