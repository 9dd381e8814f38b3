"""Selects the rows, statements and columns that a stream gets from the delivered bytes, by the stream's options."""
