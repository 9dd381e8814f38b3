"""How numbers and GTIDs are written as text."""
