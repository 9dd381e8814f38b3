"""The definitions of tables, for logs that do not hold everything that a reader needs."""
