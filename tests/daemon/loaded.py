"""Imports the daemon, in the process from which `forking` forks daemons."""

from __future__ import annotations

import dispatcher.app
import dispatcher.cli  # noqa: F401
from dispatcher.stream.warmup import load_kernels

load_kernels()
