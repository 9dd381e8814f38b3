"""What is made of decoded rows: changes, their metadata, and JSON."""
