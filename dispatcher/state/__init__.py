"""What survives a restart: acknowledged positions and session numbers."""
