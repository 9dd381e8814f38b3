"""Compares mirrored tables with the server."""
