"""Publishes the mirrored Delta tables as Iceberg tables: an Iceberg catalog gets metadata for the data files of the
Delta tables."""
