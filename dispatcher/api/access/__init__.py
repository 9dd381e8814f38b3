"""Who asks, and what they may: tokens, logins, and the check of a request."""
