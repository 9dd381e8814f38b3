"""FastAPI's part: routes, their documentation and the status page. Loaded by the first call that needs it."""
