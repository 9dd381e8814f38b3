"""Makes changes, their metadata and JSON from decoded rows."""
