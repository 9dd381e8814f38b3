"""Parses the parts of SQL statements that replication needs."""
