"""The command line. Exit codes: 0 success, 2 the user's input or settings are wrong, 1 any other error.

Expected errors are printed to stderr in one line each, without a traceback. Each command imports what it needs when it
runs, so that `--help` does not load the database driver, the web server or the terminal's library.
"""

from dispatcher.model.extras import needs_extra

with needs_extra("daemon", "the program binlog-dispatcher"):
    from dispatcher.cli.commands import app, main

__all__ = ["app", "main"]
