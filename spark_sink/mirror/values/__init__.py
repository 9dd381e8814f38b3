"""Settings, policies, names, entries of the log and other values that all packages of the mirror share."""
