"""Streams that begin with the rows that exist: `startingOffsets=snapshot`."""
