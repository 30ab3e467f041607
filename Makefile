# Everything runs in .venv, which the first target that needs it makes. A machine needs Python 3
# with venv and pip, make and git. uv is installed for this folder alone (in .uv): it takes the first
# Python of .python-version that it finds on the machine, and downloads one if there is none.

UV_VERSION := 0.13.8
PYTHON3 ?= python3
UV_PYTHON := .uv/$(UV_VERSION)/bin/python
UV := .uv/$(UV_VERSION)/bin/uv
# Launchpad's last wheel is for Python 3.10. Its compiled parts are those of Courier, which is not
# used, so that the wheel serves 3.11 under another tag.
LAUNCHPAD := $(shell grep '^dm-launchpad==' requirements.txt)
LAUNCHPAD_WHEELS := .uv/launchpad
PYTHON := .venv/bin/python
# Tests read pages and cards, whose characters not every locale has.
export PYTHONUTF8 := 1
MAKE_VENV := $(UV) venv --quiet --seed .venv
INSTALLED := .venv/.installed
# Where this package was installed from: .venv holds the path, and has to be made anew in a copy.
MOVED := $(shell made_in=$$(cat .venv/lib/python*/site-packages/_apex_agents.pth 2>/dev/null); \
  test -z "$$made_in" || test "$$made_in" -ef . || echo moved)
# uv keeps its cache and the Pythons that it downloads in the home folder, or in .uv if it cannot
# write there.
is_writable = $(shell for folder in "$(1)/uv" "$(1)" "$$HOME"; do \
    test -e "$$folder" && { test -w "$$folder" && echo yes; break; }; \
  done)
ifeq ($(call is_writable,$${XDG_CACHE_HOME:-$$HOME/.cache}),)
  export UV_CACHE_DIR ?= $(CURDIR)/.uv/cache
endif
ifeq ($(call is_writable,$${XDG_DATA_HOME:-$$HOME/.local/share}),)
  export UV_PYTHON_INSTALL_DIR ?= $(CURDIR)/.uv/python
endif
PEERS_INSTALLED := .venv-peers/.installed
APPO_INSTALLED := .venv-appo/.installed
CHECKED := $(wildcard apex_agents launch configs benchmarks docs tests/programs tests/tiers.py)
ARGS ?=
# Some parts of `make bench` compare with other libraries; all of them run without --parts.
PEERS_NEEDED := $(if $(findstring --parts,$(ARGS)),\
  $(if $(filter replay_peers end_to_end,$(ARGS)),$(PEERS_INSTALLED)),$(PEERS_INSTALLED))

.DELETE_ON_ERROR:
.PHONY: moved help train train-dpg train-a2c train-r2d2 quick test test-all test-faults test-cluster bench pages docs docs-serve \
  lint format pins dist clean

# Runs the tests of $(1) on two cores, then those of $(2) one after the other. pytest's exit code 5
# says that ARGS leave none of them: an error only if that holds for both.
define run_tests
@parallel=0; serial=0; \
$(PYTHON) -m pytest -n 2 --dist loadfile -m '$(1)' $(ARGS) || parallel=$$?; \
test $$parallel = 0 -o $$parallel = 5 || exit $$parallel; \
$(PYTHON) -m pytest -m '$(2)' $(ARGS) || serial=$$?; \
test $$serial = 5 && exit $$parallel || exit $$serial
endef

help: ## Show this list.
	@sed -n 's/^\([a-z0-9-]*\):.* ## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 21
	@echo "ARGS is passed on, as in: make test ARGS='-k adder'"

train: $(INSTALLED) ## Train Ape-X DQN on this machine; ARGS are its flags.
	@$(PYTHON) launch/apex_dqn.py --lp_launch_type=local_mp $(ARGS)

train-dpg: $(INSTALLED) ## Train Ape-X DPG on this machine; ARGS are its flags.
	@$(PYTHON) launch/apex_dpg.py --lp_launch_type=local_mp $(ARGS)

train-a2c: $(INSTALLED) ## Train A2C on this machine; ARGS are its flags.
	@$(PYTHON) launch/a2c.py --lp_launch_type=local_mp $(ARGS)

train-r2d2: $(INSTALLED) ## Train R2D2 on this machine; ARGS are its flags.
	@$(PYTHON) launch/r2d2.py --lp_launch_type=local_mp $(ARGS)

quick: $(INSTALLED) ## Run the tests that start no process, in 2 minutes; ARGS are pytest's.
	@$(PYTHON) -m pytest -n 2 --dist loadfile -m unit $(ARGS)

test: $(INSTALLED) ## Run those, the tests with a replay server and essential programs: 8 minutes.
	$(call run_tests,unit or reverb,process and essential)

test-all: $(INSTALLED) ## Run all tests but the longest of test-faults: 35 minutes.
	$(call run_tests,unit or reverb,process and not slow)

test-faults: $(INSTALLED) ## Break runs in every way that they have to survive: three of them half an hour long.
	@$(PYTHON) -m pytest -m 'fault or slow' $(ARGS)

test-cluster: $(INSTALLED) ## Run programs on a cluster of hosts made of namespaces; needs root.
	@$(PYTHON) -m pytest tests/cluster $(ARGS)

bench: $(INSTALLED) $(PEERS_NEEDED) ## Measure speed and memory, also of other libraries; ARGS: --parts acting ...
	@$(PYTHON) benchmarks/bench.py $(ARGS)

pages: $(INSTALLED) ## Write what docs/ takes from the code: fields, flags, docstrings, tables of studies.
	@$(PYTHON) docs/from_code.py

docs: $(INSTALLED) ## Build the documentation into build/docs; warnings are errors.
	@$(PYTHON) -m sphinx -q -E -W --keep-going docs build/docs
	@echo "Open build/docs/index.html, or give: make docs-serve"

docs-serve: docs ## Serve it at http://localhost:8000 until Ctrl-C.
	@$(PYTHON) -m http.server --bind 127.0.0.1 --directory build/docs 8000

lint: $(INSTALLED) ## Check style, format and types.
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m ruff format --check --quiet .
	@$(PYTHON) -m mypy --no-error-summary $(CHECKED)

format: $(INSTALLED) ## Format the code and fix what ruff can fix.
	@$(PYTHON) -m ruff format --quiet .
	@$(PYTHON) -m ruff check --fix --quiet .

# Pins for the oldest Python serve the newer one: what it does not need is small.
pins: $(UV) ## Write requirements.txt anew after a change of the dependencies.
	@$(UV) pip compile --quiet --python-version 3.10 --extra dev --extra docs \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements.txt pyproject.toml

dist: $(INSTALLED) ## Build the source archive and the wheel into dist/.
	@$(PYTHON) -m hatchling build

clean: ## Remove the environment and all caches; results of training stay.
	@rm -rf .venv .venv-peers .venv-appo .uv build dist *.egg-info .hypothesis .pytest_cache .ruff_cache .mypy_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made from /, where a pyenv without Python 3.10 does not read our .python-version.
$(UV):
	@cd / && $(PYTHON3) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: needs a $(PYTHON3) with venv and pip (Debian, Ubuntu: apt install python3-venv)" >&2; \
	  exit 1; }
	@cd / && $(PYTHON3) -m venv "$(CURDIR)/.uv/$(UV_VERSION)"
	@$(UV_PYTHON) -m pip install --quiet --disable-pip-version-check \
	  uv==$(UV_VERSION)

$(LAUNCHPAD_WHEELS)/.tagged: | $(UV)
	@$(UV_PYTHON) -m pip install --quiet --disable-pip-version-check wheel==0.48.0
	@$(UV_PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --dest $(@D) \
	  --only-binary=:all: --python-version 3.10 $(LAUNCHPAD)
	@$(UV_PYTHON) -m wheel tags --python-tag cp311 --abi-tag cp311 $(@D)/*-cp310-*.whl >/dev/null
	@touch $@

# Compiled here once: where PYTHONDONTWRITEBYTECODE is set, as in many containers, every process
# would compile TensorFlow anew (4.4 s instead of 1.5 s per import).
$(INSTALLED): requirements.txt pyproject.toml .python-version $(wildcard courier_shim/*) $(MOVED) | $(UV) \
  $(LAUNCHPAD_WHEELS)/.tagged
	@echo "Installing the packages of requirements.txt into .venv ..."
	@for version in $$(cat .python-version); do \
	  test -x $(PYTHON) || $(MAKE_VENV) --no-python-downloads --python $$version 2>/dev/null; done; \
	version=$$(head -n 1 .python-version); \
	test -x $(PYTHON) || $(MAKE_VENV) --python $$version || { \
	  echo "error: uv made no environment with Python $$version; see above" >&2; exit 1; }
	@$(UV) pip install --quiet --compile-bytecode --python $(PYTHON) \
	  --find-links $(LAUNCHPAD_WHEELS) -r requirements.txt
	@$(UV) pip install --quiet --python $(PYTHON) --no-deps --reinstall-package apex_agents -e .
	@$(UV) pip check --quiet --python $(PYTHON)
	@touch $@

moved:
	@echo "This folder was copied or moved; its .venv is made anew."
	@rm -rf .venv

# The libraries that benchmarks compare with have environments and a Python (3.11 or newer) of their
# own: they need other versions of our dependencies. sample-factory needs older ones than the others,
# and takes the games from them.
$(PEERS_INSTALLED): benchmarks/peers/requirements.txt
$(APPO_INSTALLED): benchmarks/peers/appo_requirements.txt | $(PEERS_INSTALLED)
$(PEERS_INSTALLED) $(APPO_INSTALLED):
	@echo "Installing the packages of $< into $(@D) ..."
	@cd / && $(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(@D) needs Python 3.11 or newer; name one: make PYTHON3=python3.12 ..." >&2; \
	  exit 1; }
	@cd / && $(PYTHON3) -m venv "$(CURDIR)/$(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@test ! -x $(@D)/bin/ale-import-roms || \
	  $(@D)/bin/ale-import-roms .venv-peers/lib/python*/site-packages/ale_py/roms >/dev/null
	@touch $@
