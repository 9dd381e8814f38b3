"""ASGI middleware that handles a request before the framework does."""
