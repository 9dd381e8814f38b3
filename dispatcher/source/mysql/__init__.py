"""A MySQL or MariaDB server: the login, its facts and findings, its tables, and its log as a replica reads it."""
