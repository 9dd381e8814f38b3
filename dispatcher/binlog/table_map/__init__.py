"""TABLE_MAP events: the definition of a table at one position of the log."""
