# Every command of the house. A fresh machine needs Python (>=3.11,<3.14) with venv, and make.

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet

ROOMS  := events proxy replay

# The name of the interpreter is part of the stamp, so that another PYTHON=... rebuilds the environment.
LOCKED := $(VENV)/.locked-$(subst /,_,$(PYTHON))

.PHONY: install
install: $(VENV)/.installed

# Always from empty, so that nothing outlives a changed lock file.
$(LOCKED): requirements-dev.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --require-hashes --no-deps -r requirements-dev.txt
	@touch $@

# A strict editable install links the files that exist when it is made: it depends on their list, not on their contents.
$(VENV)/.rooms: $(LOCKED) FORCE
	@find $(ROOMS) -name '*.py' -o -name py.typed | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(VENV)/.installed: $(LOCKED) $(VENV)/.rooms pyproject.toml setup.cfg
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: FORCE
FORCE:
