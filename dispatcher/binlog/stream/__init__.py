"""The daemon's path: bytes of a dump to batches, and batches to what each consumer is delivered."""
