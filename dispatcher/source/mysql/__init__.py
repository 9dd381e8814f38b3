"""A MySQL or MariaDB server: logging in, what it says of itself, and its log as a replica is sent it."""
