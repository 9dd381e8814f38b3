"""Where a log comes from: MySQL and MariaDB servers, and folders of binlog files. No rules of dispatching live here."""
