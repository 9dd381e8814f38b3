"""The HTTP API: routes and models, access checks, limits and problem documents."""
