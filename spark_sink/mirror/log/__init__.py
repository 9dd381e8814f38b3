"""The mirror's log: the changes that the daemon delivered for the consumers, one append per micro-batch."""
