"""The mirror: a log of delivered bytes in the target, and Delta tables to which the log is applied."""
