"""Finds events in delivered bytes, the cells of their rows, and the parts that are decoded together."""
