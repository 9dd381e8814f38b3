"""The Spark source "binlog": stream reader, options, HTTP client of the daemon, and rows in Arrow."""
