"""Bounds what a connection can cost: its protocol, limits, and calls whose client disconnects."""
