"""One replication connection, and the consumers that are attached to it."""
