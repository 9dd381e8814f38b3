"""The HTTP client of the daemon, for the driver and the executors."""
