"""Finds the definitions of tables for logs that lack column metadata which readers need."""
