"""The rules that depend on a server's history: where a dump may begin or continue, which consumers may attach, and when
a dispatcher connects again."""
