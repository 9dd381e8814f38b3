"""Converts the bytes of a binlog to values. Pure: no I/O, no clock; light enough for a Spark executor."""
