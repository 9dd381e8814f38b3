"""Tokens, what each token permits, and the delay of clients that guess tokens."""
