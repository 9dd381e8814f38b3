"""MySQL's binary JSON: to text, and changed in place."""
