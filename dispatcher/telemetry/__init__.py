"""What the daemon reports about itself: metrics and log lines."""
