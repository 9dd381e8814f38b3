"""The mirror's log: what the consumers delivered, one append per micro-batch."""
