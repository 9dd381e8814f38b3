"""Values of the domain: errors, GTID sets, positions. Nothing here waits, reads a clock or does I/O."""
