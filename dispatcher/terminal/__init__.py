"""What the command lines of the daemon and of the mirror have in common: lines and JSON, and live views."""
