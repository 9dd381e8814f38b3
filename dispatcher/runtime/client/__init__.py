"""One client: executes the effects of its rules, and what its readers wait for."""
