"""ASGI middleware that handles a request before the router does."""
