"""What is shown of consumers and connections: now, lately, and in the last minutes."""
