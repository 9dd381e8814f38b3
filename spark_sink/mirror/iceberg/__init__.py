"""Publishes the mirrored Delta tables as Iceberg tables: a catalog's Iceberg metadata for the same data files."""
