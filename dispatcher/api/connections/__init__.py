"""What a connection may cost: its protocol, limits, and calls whose client disconnects."""
