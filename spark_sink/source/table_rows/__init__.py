"""Reads rows of tables from a server exactly, for copies and for snapshots."""
