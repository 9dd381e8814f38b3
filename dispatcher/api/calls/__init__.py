"""The table of routes, the router, and what each call does."""
