"""The readers of streams and batches, which the source returns to Spark."""
