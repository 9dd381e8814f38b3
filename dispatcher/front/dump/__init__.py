"""Parses a replication client's request for a dump, and turns delivered bytes into the packets of the dump."""
