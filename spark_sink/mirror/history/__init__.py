"""History tables: the versions of the rows of mirrored tables, made from the log."""
