"""Single events: their types, headers and bodies, and the files that they stand in."""
