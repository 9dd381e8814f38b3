"""Acceptance tests of a running daemon: they use its console script, a YAML file, real servers, and HTTP."""
