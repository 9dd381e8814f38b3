"""The sources of a log: MySQL and MariaDB servers, and folders of binlog files. This package has no rules of
dispatching."""
