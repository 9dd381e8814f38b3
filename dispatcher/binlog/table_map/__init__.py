"""TABLE_MAP events: the definition of a table at one place of the log."""
