"""The definitions of tables, where the log does not hold all that a reader needs."""
