"""The part of the state store in a database that communicates with the database's server."""
