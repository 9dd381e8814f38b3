"""The state store for the event loop."""
