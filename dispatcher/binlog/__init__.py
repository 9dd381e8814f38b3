"""Converts the bytes of a binlog to values. Pure: it does no I/O, reads no clock, and loads fast enough for a Spark
executor."""
