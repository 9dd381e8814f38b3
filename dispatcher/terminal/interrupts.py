"""What Ctrl-C does before a command runs. A command that has a longer life handles SIGINT itself; in all others, typer
ends the process with `EXIT_INTERRUPTED`, too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_INTERRUPTED = 128 + signal.SIGINT
"""The exit code that a shell has for a program that Ctrl-C has ended."""


@contextmanager
def exit_at_interrupt() -> Iterator[None]:
    """Let SIGINT end the process at once, and without a traceback, while the block imports a program's modules.

    A KeyboardInterrupt would not do: Python prints and ignores it in a finalizer, and libraries catch it. In a process
    that ignores SIGINT or has a handler for it, and in another thread than the main thread, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
