"""The server's side of MySQL's client/server protocol: packets, logins, result sets."""
