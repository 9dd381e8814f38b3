"""The questions that replication clients ask before a dump, and their answers."""
