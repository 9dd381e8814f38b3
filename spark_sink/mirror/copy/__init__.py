"""Copies existing rows from a server into a folder of the target, on which the log is then replayed."""
