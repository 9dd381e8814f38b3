"""A consumer's queue: what it holds, and what its reader has received."""
