"""The HTTP API: FastAPI routes and models, access checks, limits and problem documents."""
