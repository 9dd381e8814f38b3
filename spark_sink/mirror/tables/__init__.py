"""The mirrored tables of a consumer as Delta tables, and the steps that apply entries of the log to them."""
