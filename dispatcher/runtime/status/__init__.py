"""The status of consumers and connections: rows, rates, samples of the last minutes, and the timeline."""
