"""What the pages of both programs load."""
