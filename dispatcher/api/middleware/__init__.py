"""ASGI applications through which a request passes before it comes to the framework."""
