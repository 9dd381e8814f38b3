"""Settings, policies, names, entries of the log and other values that all rooms of the mirror share."""
