"""Decodes the cells of columns to Arrow arrays."""
