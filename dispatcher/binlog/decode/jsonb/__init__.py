"""MySQL's binary JSON: converts it to text, and changes values in it."""
