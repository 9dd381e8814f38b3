"""Prepares the process of the daemon before its event loop runs: limits, permissions, compiled kernels."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource

import structlog

from dispatcher.binlog.stream.warmup import load_kept_kernels, load_kernels


def prepare_process() -> None:
    os.umask(0o077)  # for every file created from here on, also by libraries
    # A watchdog ends a daemon whose loop is stuck with SIGABRT: then stderr gets the stack of each thread.
    faulthandler.enable()
    _raise_file_limit()


def _raise_file_limit() -> None:
    """Raise the soft limit to the hard limit: each connection and each segment on disk needs a descriptor.

    The default soft limit is low for the sake of programs that use select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warm_up_kernels() -> None:
    """Load the kernels before the first connection needs them.

    Without a cache of compiled kernels a child process compiles them, because compiling leaves about 100 MB of the
    compiler's memory in the process. This process loads the child's cache; if it is not writable, it compiles too.
    """
    log = structlog.get_logger("dispatcher")
    log.debug("loading kernels")
    if load_kept_kernels():
        return
    log.info("compiling kernels, once per version and machine")
    child = multiprocessing.get_context("fork").Process(target=load_kernels, daemon=True)
    child.start()
    child.join()
    load_kernels()
