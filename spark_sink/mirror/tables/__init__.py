"""The mirrored tables of a consumer as Delta tables, and the steps that apply entries to one."""
