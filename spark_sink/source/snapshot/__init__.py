"""Streams that begin with the existing rows of the tables: `startingOffsets=snapshot`."""
