"""The basic values of the project: errors, GTID sets, positions. The package does not wait, reads no clock and does no
I/O."""
