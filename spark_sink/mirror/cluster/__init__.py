"""Checks the executors of a cluster before they work."""
