"""The daemon's files: the state store, which survives a restart, and spilled transactions, which do not survive it."""
