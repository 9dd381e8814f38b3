"""The mirrored tables of a consumer as Delta tables, and the steps that bring one forward."""
