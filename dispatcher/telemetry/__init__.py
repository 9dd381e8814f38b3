"""What the daemon tells of itself: metrics and log lines."""
