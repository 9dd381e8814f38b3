"""The columns of mirrored tables, and how statements change them. Pure."""
