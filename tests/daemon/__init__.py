"""Acceptance tests of the running daemon: its console script, a YAML file, real servers, and HTTP."""
