#!/bin/sh
# Entry point of the daemon's image. The image holds kernels that were compiled when it was built, and is read-only where
# the daemon runs; numba needs them in a folder that it can write. On another kind of processor it compiles them itself.
set -eu
kept=/opt/binlog-dispatcher/kernels
mkdir -p "$NUMBA_CACHE_DIR"
# A folder for each release.
for release in "$kept"/*; do
    [ -e "$NUMBA_CACHE_DIR/${release##*/}" ] || cp -R --preserve=timestamps "$release" "$NUMBA_CACHE_DIR/"
done
exec binlog-dispatcher "$@"
