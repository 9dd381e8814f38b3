"""The command `binlog-dispatcher read`: changes as lines of JSON."""
