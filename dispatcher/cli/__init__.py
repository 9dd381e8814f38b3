"""The command line. Exit codes: 0 success, 2 the user's input or settings are wrong, 130 Ctrl-C, 1 any other error.

Expected errors are printed to stderr in one line each, without a traceback. Each command imports what it needs when it
runs, so that `--help` does not load the database driver, the web server or the terminal's library.
"""

from dispatcher.model.extras import needs_extra
from dispatcher.terminal.interrupts import exit_at_interrupt

with exit_at_interrupt(), needs_extra("daemon", "binlog-dispatcher", program=True):
    from dispatcher.cli.commands import app, main

__all__ = ["app", "main"]
