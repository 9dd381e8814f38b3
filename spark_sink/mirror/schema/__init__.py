"""The columns of mirrored tables, and what statements make of them. Pure."""
