"""A simulation of streams that begin with a snapshot."""
