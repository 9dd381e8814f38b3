"""The HTTP API: FastAPI models and routes over what the running rooms offer."""
