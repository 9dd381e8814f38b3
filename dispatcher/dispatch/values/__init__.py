"""The values that the rules compute with: declarations, positions, the state of a server, and wait budgets."""
