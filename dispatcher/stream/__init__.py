"""The daemon's path: converts the bytes of a dump to batches, and batches to the bytes that each consumer gets."""
