"""A folder of binlog files as a source."""
