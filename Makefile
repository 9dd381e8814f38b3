# Each target installs what it needs on a fresh Debian or Ubuntu machine with Python >= 3.11, git and make. Servers and jars
# go into a cache folder: see BINLOG_DISPATCHER_CACHE in docs/development.md.
.PHONY: help manifests docs image demo screenshot picture test test-deep simulate mutants soak fuzz kernels classes rewritten lint bench \
	servers jars sparks setup lock clean release size
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PY := .venv/bin/python
# Tests of one file share servers and a Spark session, so they run in one worker (but see tests/conftest.py). They spend
# half of their time waiting for servers and JVMs, so five workers keep two cores busy. With
# seven, beside two other busy processes, Python workers of Spark do not start within the ten seconds that Spark waits.
PYTEST_WORKERS ?= 5
PYTEST_ARGS ?=

help:
	@echo "make demo     mirror a real MySQL server to Delta and compare every value (KEEP=1: until Ctrl-C; STANDBY=1:"
	@echo "              with two daemons, the leader of which is killed under load)"
	@echo "make picture  run the demo and draw docs/demo.svg; run the first commands and draw"
	@echo "              docs/init.svg, docs/read.svg and docs/copy.svg"
	@echo "make screenshot  run a server, a daemon and readers, and draw the pages of the daemon, the mirror and Spark into docs"
	@echo "make test     run lint, then all tests"
	@echo "make test-deep  test generated tables on all four servers with new random seeds, for DEEP_MINUTES=10; then the long"
	@echo "              tests of the mirror: kills, histories of DDL, copies under load"
	@echo "make simulate simulate the daemon, leadership and the mirror with SEEDS=1000 seeds each from FIRST=0 on, in JOBS=1"
	@echo "              processes (DAEMON=1, LEADERSHIP=1, MIRROR=1 or SNAPSHOT=1: this one only)"
	@echo "make mutants  break each rule of the daemon, of leadership and of the mirror in turn, and check that the simulation"
	@echo "              detects it"
	@echo "make soak     test slow, idle and many consumers, and random histories, for 40 minutes"
	@echo "make fuzz     fuzz every parser of bytes, for FUZZ_SECONDS=20 each"
	@echo "make lint     run ruff, mypy and the import contracts"
	@echo "make bench    measure what has a target, and other programs for comparison (FULL=1: larger logs, every part)"
	@echo "make manifests  write the generated files: dashboard, docs/metrics.md, docs/settings.md,"
	@echo "              docs/http-api-reference.md, llms.txt, plain Kubernetes manifests (needs Helm or Go)"
	@echo "make docs     build the documentation as a web site into site"
	@echo "make release  build the sdist and the wheel into dist, list what they contain, and run them in fresh environments"
	@echo "make size     count the lines of code, docstrings and comments by package"
	@echo "make image    run the steps of the Dockerfile in a chroot, without a container engine, as root"
	@echo "make sparks   download other versions of Spark, for the tests, into the cache folder"
	@echo "make servers  download the MySQL and MariaDB servers of the tests into the cache folder"
	@echo "make clean    remove everything that was built in this folder"

setup:
	@deploy/setup.sh venv

servers:
	@deploy/setup.sh mirror npm systemd chromium venv
	@$(PY) -m tests.servers provision
	@$(PY) -m tests.support.prometheus
	@$(PY) -m tests.support.broker

jars:
	@deploy/setup.sh java venv
	@$(PY) -m spark_sink.jars >/dev/null

# A file for each line of Spark says which versions the tests use beside those of requirements.lock.
sparks:
	@deploy/setup.sh java venv
	@$(PY) -m tests.spark.lines provision

demo: jars
	@deploy/setup.sh mirror
	@$(PY) -m deploy.demo $(if $(KEEP),--keep) $(if $(STANDBY),--standby)

# A second build must make identical files. The tests install the wheel into fresh environments and run daemon, source and
# mirror.
release: jars servers
	@rm -rf dist .cache/dist
	@$(PY) -m build -q -o dist && $(PY) -m build -q -o .cache/dist
	@diff -r dist .cache/dist
	@deploy/setup.sh sbom
	@for image in daemon spark; do \
		PYTHONWARNINGS=ignore::UserWarning .cache/sbom/bin/cyclonedx-py requirements deploy/$$image.lock --pyproject pyproject.toml \
			--output-reproducible -o dist/binlog-dispatcher-$$image.cdx.json || exit 1; done
	@$(PY) -m deploy.release dist
	$(PY) -m pytest -q -m "" tests/deploy/test_packaging.py

size: setup
	@$(PY) -m deploy.size

# The steps of the Dockerfile, without a container engine; as root.
image:
	@deploy/setup.sh venv debootstrap
	@$(PY) -m deploy.image.chroot daemon
	@$(PY) -m deploy.image.chroot mirror

# References, the dashboard, and the plain manifests of Kubernetes, rendered from the Helm chart.
manifests:
	@deploy/setup.sh venv helm
	@$(PY) -m deploy.metrics_reference
	@$(PY) -m deploy.settings_reference
	@$(PY) -m deploy.api_reference
	@$(PY) -m deploy.grafana.dashboard
	@$(PY) -m deploy.docs_site --llms
	@$(PY) -m deploy.manifests

# The documentation as a web site, in the folder site.
docs:
	@deploy/setup.sh docs
	@.cache/docs/bin/python -m deploy.docs_site site

# The picture of the README, drawn by the demo itself, and those of the first commands.
picture: jars
	@deploy/setup.sh mirror
	@$(PY) -m deploy.demo --picture docs/demo.svg
	@$(PY) -m deploy.first_hour docs

# The pictures of the status page, and of Spark's page of a stream, from real runs.
screenshot: jars
	@deploy/setup.sh mirror chromium
	@$(PY) -m deploy.screenshot docs
	@$(PY) -m deploy.mirror_page docs
	@$(PY) -m deploy.spark_ui docs/spark-ui.png

# The other programs need Maven with a JDK, or Node; the report lists each program that cannot run, with the reason.
bench: kernels
	@deploy/setup.sh mirror npm venv
	@$(PY) -c 'import matplotlib' 2>/dev/null || $(PY) -m pip install -q --require-hashes --no-deps -r deploy/bench.lock
	@$(PY) -m benchmarks $(if $(FULL),--full)
	@$(if $(FULL),$(PY) -m benchmarks.report)

# The tests start thousands of programs, and each worker imports 600 files. Some environments set this variable, which
# forbids compiled files; then each program and each worker compiles its modules again.
unexport PYTHONDONTWRITEBYTECODE

# Linting and compiling kernels use a core each. Kernels are compiled first; otherwise, in a clean clone, every test worker,
# daemon and Spark worker would compile the same kernels at the same time. With an archive of classes each JVM of the tests
# needs less CPU time to start. The test files are compiled by one process (pytest rewrites their assertions first), not by
# all workers at the same time.
test: servers jars sparks
	@$(MAKE) -j2 -Otarget lint kernels classes rewritten
	$(PY) -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations=15 $(PYTEST_ARGS)

DEEP_MINUTES ?= 10
test-deep: servers jars sparks kernels
	@deploy/setup.sh moto readers notebook docs maven postgres
	DEEP_MINUTES=$(DEEP_MINUTES) $(PY) -m pytest -s tests/differential -k many_minutes $(PYTEST_ARGS)
	$(PY) -m pytest -s -m deep --durations=0 $(PYTEST_ARGS)

SEEDS ?= 1000
FIRST ?= 0
JOBS ?= 1
# All simulations, unless some are chosen.
CHOSEN = $(if $(DAEMON),tests.simulation) $(if $(LEADERSHIP),tests.leadership_simulation) \
	$(if $(MIRROR),tests.mirror_simulation) $(if $(SNAPSHOT),tests.snapshot_simulation)
SIMULATIONS = $(or $(strip $(CHOSEN)),tests.simulation tests.leadership_simulation tests.mirror_simulation \
	tests.snapshot_simulation)
simulate: setup
	@set -e; for package in $(SIMULATIONS); do \
		$(PY) -m $$package --seeds $(SEEDS) --first $(FIRST) --jobs $(JOBS); done

MUTANT_SEEDS ?= 4000
mutants: setup
	@set -e; for package in $(SIMULATIONS); do \
		$(PY) -m $$package.mutate --seeds $(MUTANT_SEEDS) --jobs $(JOBS); done

# `make test` runs these tests of tests/faults for some seconds each; here they run longer.
JUDGE_HISTORIES ?= 200
SLOW_SECONDS ?= 60
QUIET_SECONDS ?= 600
STORM_SECONDS ?= 300
STORM_CONSUMERS ?= 200
soak: servers kernels
	JUDGE_HISTORIES=$(JUDGE_HISTORIES) SLOW_SECONDS=$(SLOW_SECONDS) QUIET_SECONDS=$(QUIET_SECONDS) \
		STORM_SECONDS=$(STORM_SECONDS) STORM_CONSUMERS=$(STORM_CONSUMERS) $(PY) -m pytest -s \
		$(addprefix tests/faults/test_,slow.py quiet.py storm.py judge.py) $(PYTEST_ARGS)

FUZZ_SECONDS ?= 20
fuzz: setup
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install -q --require-hashes --no-deps -r deploy/fuzz.lock
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(PY) -m tests.fuzz
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.cache/numba-bounds $(PY) -m tests.fuzz.bounds

kernels: setup
	@$(PY) -m tests.kernels

classes: jars
	@$(PY) -m tests.support.java 2>/dev/null

# If a file cannot be collected, the tests report it.
rewritten: setup
	-@$(PY) -m pytest --collect-only -qq -p no:cacheprovider >/dev/null

lint: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo

# Resolves the newest versions within pyproject.toml's bounds, for all Pythons and platforms. deploy/daemon.lock and
# deploy/spark.lock hold the packages that the images need, in the same versions.
UV_COMPILE = .cache/uv/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links -q
lock: setup
	$(PY) -m venv .cache/uv
	.cache/uv/bin/python -m pip install -q uv
	$(UV_COMPILE) --extra daemon --extra spark --extra iceberg --extra pipelines --group dev -o requirements.lock
	$(UV_COMPILE) --extra daemon --group build -c requirements.lock -o deploy/daemon.lock
	$(UV_COMPILE) --extra spark --extra iceberg --group build -c requirements.lock -o deploy/spark.lock
	$(subst pyproject.toml,,$(UV_COMPILE)) --group fuzz -o deploy/fuzz.lock
	$(subst pyproject.toml,,$(UV_COMPILE)) --group bench -c requirements.lock -o deploy/bench.lock
	$(subst pyproject.toml,,$(UV_COMPILE)) --group docs -o deploy/docs.lock
	$(subst pyproject.toml,,$(UV_COMPILE)) --group sbom -o deploy/sbom.lock
	$(subst pyproject.toml,,$(UV_COMPILE)) --group notebook -c requirements.lock -o deploy/notebook.lock
	$(subst pyproject.toml,,$(UV_COMPILE)) --group moto -o deploy/moto.lock
	$(subst pyproject.toml,,$(UV_COMPILE)) --group readers -o deploy/readers.lock
	for line in 40 41 43; do \
		$(subst pyproject.toml,,$(UV_COMPILE)) --group spark$$line -o deploy/spark$$line.lock || exit 1; done

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
