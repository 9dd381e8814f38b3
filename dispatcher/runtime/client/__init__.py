"""One client: executes the effects of its rules, and lets its readers wait for transactions."""
