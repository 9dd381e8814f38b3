"""Code that the command lines of the daemon and of the mirror share: it prints lines, JSON and live views."""
