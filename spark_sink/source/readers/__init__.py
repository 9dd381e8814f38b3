"""The readers that Spark gets from the source: of streams and of batches."""
