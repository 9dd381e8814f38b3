"""A listener that speaks MySQL's protocol, so that replication clients can read consumers."""
