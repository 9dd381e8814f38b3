"""What a state store in a database asks of the database's server."""
