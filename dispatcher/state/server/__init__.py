"""What a state store in a database needs from the database's server."""
