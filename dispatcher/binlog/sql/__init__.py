"""Parses SQL statements as far as replication must understand them."""
