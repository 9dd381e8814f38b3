#!/bin/sh
# Entry point of the daemon's image. The image holds kernels that were compiled when it was built, and may be read-only.
# numba needs the kernels in a folder that it can write. On another kind of processor numba compiles them again.
set -eu
kept=/opt/binlog-dispatcher/kernels
mkdir -p "$NUMBA_CACHE_DIR"
# There is a folder for each release of the project.
for release in "$kept"/*; do
    [ -e "$NUMBA_CACHE_DIR/${release##*/}" ] || cp -R --preserve=timestamps "$release" "$NUMBA_CACHE_DIR/"
done
exec binlog-dispatcher "$@"
