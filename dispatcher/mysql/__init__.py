"""What a client of a MySQL or MariaDB server needs."""
