"""Formats numbers and GTIDs as text."""
