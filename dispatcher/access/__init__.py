"""Who may do what: tokens, and the guessing of tokens."""
