"""The rules that depend on a server's history: where a dump may begin or go on, which consumers may attach, and when to
retry."""
