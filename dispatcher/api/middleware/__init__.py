"""ASGI applications that a request passes before it comes to the framework."""
