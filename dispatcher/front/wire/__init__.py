"""MySQL's client/server protocol, seen from the server: packets, logins, result sets."""
