"""Access checks: tokens and their scopes, logins of browsers, and the guard of requests."""
